//! The JPEGs of the vector, intact and damaged.

use std::sync::Arc;

use ringmain::backends::MemoryBackend;
use ringmain::beton::{
    BetonDamage, BetonReader, FIELD_LEN, HEADER_LEN, Image, ImageMode, Resize, Value,
};
use ringmain::{Damage, Engine, Error, Item};

use crate::expected::{SAMPLES, vector};

#[test]
fn every_image_of_the_vector_is_decoded() {
    let reader = BetonReader::open(&Engine::new().unwrap(), vector()).unwrap();
    let ids: Vec<u64> = (0..SAMPLES).collect();
    let batch = reader.read_batch(&ids).unwrap();
    let (mut jpegs, mut spread) = (0, 0);
    for at in 0..batch.len() {
        let Value::Image(image) = batch.value(at, 5).unwrap() else { panic!() };
        let mut rgb = vec![7; image.rgb_bytes()];
        batch.decode_image(at, 5, &mut rgb).unwrap();
        match image.mode {
            ImageMode::Raw => assert_eq!(rgb, image.bytes),
            ImageMode::Jpeg => {
                jpegs += 1;
                spread += usize::from(rgb.iter().max() > rgb.iter().min());
            }
        }
    }
    assert!(jpegs > 100 && spread == jpegs, "{spread} of {jpegs} have more than one colour");
}

#[test]
fn a_bad_jpeg_is_an_error_that_names_sample_and_field() {
    let reader = BetonReader::open(&Engine::new().unwrap(), vector()).unwrap();
    let sample = reader.read_sample(1).unwrap();
    let Value::Image(image) = sample.get("img").unwrap() else { panic!() };
    assert_eq!(image.mode, ImageMode::Jpeg);
    let mut rgb = vec![0; image.rgb_bytes()];
    image.decode_into(&mut rgb).unwrap();
    for cut in [0, 1, 2, 100, image.bytes.len() / 2] {
        let broken = Image { bytes: &image.bytes[..cut], ..image };
        assert!(matches!(broken.decode_into(&mut rgb), Err(BetonDamage::BadJpeg { .. })), "{cut}");
    }
    let other = Image { width: image.width + 1, ..image };
    let mut memory = vec![0; other.rgb_bytes()];
    assert!(matches!(other.decode_into(&mut memory), Err(BetonDamage::BadJpeg { .. })));
    let error = sample.as_batch().decode_image(0, 5, &mut rgb[1..]).unwrap_err();
    let item = Item::Sample { id: 1, field: Some("img".into()) };
    let is_named = error.item() == Some(&item) && error.damage().is_some();
    assert!(is_named, "{error}");
    assert!(sample.as_batch().decode_image(0, 0, &mut []).is_err());
}

#[test]
fn all_images_of_a_batch_are_resized() {
    let reader = BetonReader::open(&Engine::new().unwrap(), vector()).unwrap();
    let ids: Vec<u64> = (0..30).rev().collect();
    let batch = reader.read_batch(&ids).unwrap();
    for resize in [Resize::new(9, 7).unwrap(), Resize::new(5, 5).unwrap().center_crop(0.7).unwrap()]
    {
        let mut all = vec![0; batch.len() * resize.rgb_bytes()];
        batch.decode_resized(5, &resize, &mut all).unwrap();
        for (id, found) in ids.iter().zip(all.chunks_exact(resize.rgb_bytes())) {
            let mut one = vec![0; resize.rgb_bytes()];
            let sample = reader.read_sample(*id).unwrap();
            sample.as_batch().decode_resized(5, &resize, &mut one).unwrap();
            assert!(one == found && found.iter().max() > found.iter().min(), "sample {id}");
        }
        let given = all.len() - 1;
        let error = batch.decode_resized(5, &resize, &mut all[1..]).unwrap_err();
        assert!(
            matches!(error, Error::BufferSize { given: found, .. } if found == given),
            "{error}"
        );
    }
    // An image of its own size is the decoded image.
    let sample = reader.read_sample(1).unwrap();
    let Value::Image(image) = sample.get("img").unwrap() else { panic!() };
    let (mut decoded, mut resized) = (vec![0; image.rgb_bytes()], vec![0; image.rgb_bytes()]);
    image.decode_into(&mut decoded).unwrap();
    let resize = Resize::new(image.height, image.width).unwrap();
    sample.as_batch().decode_resized(5, &resize, &mut resized).unwrap();
    assert!(decoded == resized);
}

#[test]
fn resizing_can_be_ended_between_images() {
    let reader = BetonReader::open(&Engine::new().unwrap(), vector()).unwrap();
    let batch = reader.read_batch(&[0, 1, 2, 3]).unwrap();
    let resize = Resize::new(4, 4).unwrap();
    let mut whole = vec![0; 4 * resize.rgb_bytes()];
    let mut asked = 0;
    let go_on = || {
        asked += 1;
        true
    };
    assert!(batch.decode_resized_while(5, &resize, &mut whole, go_on).unwrap());
    assert_eq!(asked, 4, "once for each image");
    let mut part = vec![0; whole.len()];
    let mut left = 2;
    let go_on = || {
        left -= 1;
        left >= 0
    };
    assert!(!batch.decode_resized_while(5, &resize, &mut part, go_on).unwrap());
    let done = 2 * resize.rgb_bytes();
    assert!(part[..done] == whole[..done] && part[done..].iter().all(|byte| *byte == 0));
}

#[test]
fn images_that_cannot_be_resized_are_errors_that_name_them() {
    let mut bytes = std::fs::read(vector()).unwrap();
    let rows_at = HEADER_LEN + 6 * FIELD_LEN;
    let image_at = rows_at + 72 + 56; // the image of sample 1: its mode, its width, its height
    bytes[image_at + 3..image_at + 5].fill(0);
    let memory = MemoryBackend::new();
    memory.insert("a.beton", bytes);
    let engine = Engine::builder().with_backend(Arc::new(memory)).build().unwrap();
    let batch = BetonReader::open(&engine, "a.beton").unwrap().read_batch(&[0, 1]).unwrap();
    let Value::Image(image) = batch.value(1, 5).unwrap() else { panic!() };
    assert_eq!((image.mode, image.height), (ImageMode::Jpeg, 0));
    let resize = Resize::new(2, 2).unwrap();
    let mut rgb = vec![0; 2 * resize.rgb_bytes()];
    let error = batch.decode_resized(5, &resize, &mut rgb).unwrap_err();
    assert_eq!(error.item(), Some(&Item::Sample { id: 1, field: Some("img".into()) }), "{error}");
    assert!(matches!(error.damage(), Some(Damage::Beton(BetonDamage::EmptyImage))), "{error}");
    let error = batch.decode_resized(0, &resize, &mut rgb).unwrap_err();
    assert!(matches!(error.item(), Some(Item::Sample { id: 0, .. })), "{error}");
}
