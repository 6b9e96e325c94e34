//! The JPEGs of the vector, intact and damaged.

use ringmain::Engine;
use ringmain::Item;
use ringmain::beton::{BetonDamage, BetonReader, Image, ImageMode, Value};

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
