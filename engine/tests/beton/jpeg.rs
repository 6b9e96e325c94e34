//! The JPEGs of the vector, intact and damaged.

use std::num::NonZeroUsize;
use std::sync::Arc;

use ringmain::backends::MemoryBackend;
use ringmain::beton::{
    Batch, BetonDamage, BetonReader, BetonWriter, Crop, FIELD_LEN, Field, FieldKind, HEADER_LEN,
    Image, ImageDecoder, ImageForm, ImageMode, PixelLayout, PixelType, Value,
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

/// Returns the bytes of the vector, with other bytes in the metadata of the image of sample 1.
fn changed(change: impl Fn(&mut [u8])) -> Batch {
    let mut bytes = std::fs::read(vector()).unwrap();
    let rows_at = HEADER_LEN + 6 * FIELD_LEN;
    change(&mut bytes[rows_at + 72 + 56..]); // its mode, its width, its height
    let memory = MemoryBackend::new();
    memory.insert("a.beton", bytes);
    let engine = Engine::builder().with_backend(Arc::new(memory)).build().unwrap();
    BetonReader::open(&engine, "a.beton").unwrap().read_batch(&[0, 1]).unwrap()
}

/// Returns a dataset of these JPEGs in memory.
fn of_jpegs(jpegs: &[Vec<u8>]) -> BetonReader {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.beton");
    let fields = [Field::new("img", FieldKind::RgbImage).unwrap()];
    let written =
        BetonWriter::new(fields).write_indexed(&path, jpegs.len() as u64, |id, sample| {
            sample.image_jpeg(&jpegs[id as usize])?;
            Ok(())
        });
    written.unwrap();
    let memory = MemoryBackend::new();
    memory.insert("a.beton", std::fs::read(path).unwrap());
    let engine = Engine::builder().with_backend(Arc::new(memory)).build().unwrap();
    BetonReader::open(&engine, "a.beton").unwrap()
}

/// Returns a JPEG of the vector with another frame header.
fn with_frame(change: impl Fn(&mut [u8])) -> Vec<u8> {
    let reader = BetonReader::open(&Engine::new().unwrap(), vector()).unwrap();
    let sample = reader.read_sample(1).unwrap();
    let Value::Image(image) = sample.get("img").unwrap() else { panic!() };
    let mut jpeg = image.bytes.to_vec();
    let at = jpeg.windows(2).position(|marker| marker == [0xFF, 0xC0]).unwrap();
    change(&mut jpeg[at + 4..]); // bits, height, width, components
    jpeg
}

fn threads(count: usize) -> ImageDecoder {
    ImageDecoder::new().threads(NonZeroUsize::new(count).unwrap())
}

fn forms() -> Vec<ImageForm> {
    let random = Crop::random((0.08, 1.0), (0.75, 1.33), 3).unwrap();
    let form = |height, width| ImageForm::new(height, width).unwrap();
    vec![
        form(9, 7),
        form(5, 5).crop(Crop::center(0.7).unwrap()),
        form(6, 6).crop(random),
        form(6, 4)
            .crop(random)
            .pixels(PixelType::F32, PixelLayout::Nchw)
            .normalized([120.0; 3], [60.0; 3])
            .unwrap(),
    ]
}

#[test]
fn a_batch_has_the_same_bytes_for_any_number_of_threads() {
    let reader = BetonReader::open(&Engine::new().unwrap(), vector()).unwrap();
    let ids: Vec<u64> = (0..60).rev().collect();
    let batch = reader.read_batch(&ids).unwrap();
    for form in forms() {
        let mut all = vec![0; batch.len() * form.image_bytes()];
        threads(1).decode(&batch, 5, &form, 4, &mut all).unwrap();
        for count in [2, 7, 100] {
            let (decoder, mut again) = (threads(count), vec![1; all.len()]);
            decoder.decode(&batch, 5, &form, 4, &mut again).unwrap();
            assert!(all == again, "{count} threads");
            decoder.decode(&batch, 5, &form, 4, &mut again).unwrap();
            assert!(all == again, "{count} threads that are used again");
        }
        // A sample by itself, as another worker would read it.
        for (id, found) in ids.iter().zip(all.chunks_exact(form.image_bytes())) {
            let mut one = vec![0; form.image_bytes()];
            let sample = reader.read_sample(*id).unwrap();
            threads(1).decode(sample.as_batch(), 5, &form, 4, &mut one).unwrap();
            assert!(one == found && found.iter().max() > found.iter().min(), "sample {id}");
        }
        let given = all.len() - 1;
        let error = threads(1).decode(&batch, 5, &form, 4, &mut all[1..]).unwrap_err();
        assert!(
            matches!(error, Error::BufferSize { given: found, .. } if found == given),
            "{error}"
        );
    }
}

#[test]
fn random_crops_differ_between_epochs() {
    let reader = BetonReader::open(&Engine::new().unwrap(), vector()).unwrap();
    let batch = reader.read_batch(&(0..30).collect::<Vec<_>>()).unwrap();
    let form = &forms()[2];
    let decoded = |epoch| {
        let mut images = vec![0; batch.len() * form.image_bytes()];
        threads(2).decode(&batch, 5, form, epoch, &mut images).unwrap();
        images
    };
    assert!(decoded(0) == decoded(0) && decoded(0) != decoded(1));
}

#[test]
fn images_in_their_own_sizes_are_those_of_decode_image() {
    let reader = BetonReader::open(&Engine::new().unwrap(), vector()).unwrap();
    let batch = reader.read_batch(&(0..20).collect::<Vec<_>>()).unwrap();
    let sizes = (0..20).map(|at| {
        let Value::Image(image) = batch.value(at, 5).unwrap() else { panic!() };
        (image.height, image.width, image.rgb_bytes())
    });
    let sizes: Vec<_> = sizes.collect();
    let mut found: Vec<_> = sizes.iter().map(|(.., bytes)| vec![0; *bytes]).collect();
    let mut images: Vec<_> = found.iter_mut().map(Vec::as_mut_slice).enumerate().collect();
    assert!(threads(3).decode_each(&batch, 5, &mut images, &mut || true).unwrap());
    for (at, (found, (height, width, bytes))) in found.iter().zip(sizes).enumerate() {
        let mut expected = vec![1; bytes];
        batch.decode_image(at, 5, &mut expected).unwrap();
        assert!(*found == expected, "{at}");
        // A form of the same size delivers the decoded image.
        let form = ImageForm::new(height, width).unwrap();
        let sample = reader.read_sample(at as u64).unwrap();
        threads(1).decode(sample.as_batch(), 5, &form, 0, &mut expected).unwrap();
        assert!(*found == expected, "{at}");
    }
}

#[test]
fn decoding_can_be_ended_between_images() {
    let reader = BetonReader::open(&Engine::new().unwrap(), vector()).unwrap();
    let batch = reader.read_batch(&[0, 1, 2, 3]).unwrap();
    let form = ImageForm::new(4, 4).unwrap();
    let mut whole = vec![0; 4 * form.image_bytes()];
    let mut asked = 0;
    let mut go_on = || {
        asked += 1;
        true
    };
    assert!(threads(1).decode_while(&batch, 5, &form, 0, &mut whole, &mut go_on).unwrap());
    assert_eq!(asked, 4, "once for each image");
    let mut part = vec![0; whole.len()];
    let mut left = 2;
    let mut go_on = || {
        left -= 1;
        left >= 0
    };
    assert!(!threads(1).decode_while(&batch, 5, &form, 0, &mut part, &mut go_on).unwrap());
    let done = 2 * form.image_bytes();
    assert!(part[..done] == whole[..done] && part[done..].iter().all(|byte| *byte == 0));
}

#[test]
fn images_without_pixels_and_other_fields_are_errors_that_name_them() {
    let batch = changed(|image| image[3..5].fill(0));
    let Value::Image(image) = batch.value(1, 5).unwrap() else { panic!() };
    assert_eq!((image.mode, image.height), (ImageMode::Jpeg, 0));
    let form = ImageForm::new(2, 2).unwrap();
    let mut rgb = vec![0; 2 * form.image_bytes()];
    let error = threads(2).decode(&batch, 5, &form, 0, &mut rgb).unwrap_err();
    assert_eq!(error.item(), Some(&Item::Sample { id: 1, field: Some("img".into()) }), "{error}");
    assert!(matches!(error.damage(), Some(Damage::Beton(BetonDamage::EmptyImage))), "{error}");
    let error = threads(1).decode(&batch, 0, &form, 0, &mut rgb).unwrap_err();
    assert!(matches!(error.item(), Some(Item::Sample { id: 0, .. })), "{error}");
}

/// Both the metadata and the JPEG say 65535 × 65535: 12.9 GB of pixels. The limit is checked before they are allocated.
#[test]
fn a_jpeg_bomb_is_refused_by_its_pixels() {
    let reader = of_jpegs(&[with_frame(|frame| frame[1..5].fill(0xFF))]);
    let batch = reader.read_batch(&[0]).unwrap();
    let form = ImageForm::new(2, 2).unwrap();
    let mut rgb = vec![0; form.image_bytes()];
    let refused = |error: Error| {
        let Some(Damage::Beton(BetonDamage::TooManyPixels { width, height, .. })) = error.damage()
        else {
            panic!("{error}")
        };
        assert_eq!((*width, *height), (65535, 65535));
        assert!(matches!(error.item(), Some(Item::Sample { id: 0, .. })), "{error}");
    };
    refused(threads(1).decode(&batch, 0, &form, 0, &mut rgb).unwrap_err());
    refused(ImageDecoder::new().check(&batch, 0, 0).unwrap_err());
    // The limit is inclusive.
    let small = BetonReader::open(&Engine::new().unwrap(), vector()).unwrap();
    let batch = small.read_batch(&[1]).unwrap();
    let Value::Image(image) = batch.value(0, 5).unwrap() else { panic!() };
    let pixels = u64::from(image.width) * u64::from(image.height);
    threads(1).pixels_max(pixels).decode(&batch, 5, &form, 0, &mut rgb).unwrap();
    assert!(threads(1).pixels_max(pixels - 1).decode(&batch, 5, &form, 0, &mut rgb).is_err());
}

#[test]
fn jpegs_of_other_kinds_are_errors_that_say_so() {
    let kinds = [
        (with_frame(|frame| frame[5] = 4), "CMYK"),
        (with_frame(|frame| frame[0] = 16), "16 bits"),
        (with_frame(|frame| frame[0] = 12), "12 bits"),
        (with_frame(|frame| frame[5] = 2), "2 colours"),
    ];
    let jpegs: Vec<_> = kinds.iter().map(|(jpeg, _)| jpeg.clone()).collect();
    let reader = of_jpegs(&jpegs);
    let form = ImageForm::new(2, 2).unwrap();
    let mut rgb = vec![0; form.image_bytes()];
    for (id, (_, reason)) in kinds.iter().enumerate() {
        let sample = reader.read_sample(id as u64).unwrap();
        let error = threads(1).decode(sample.as_batch(), 0, &form, 0, &mut rgb).unwrap_err();
        assert!(error.to_string().contains(reason), "{error}");
        assert!(error.to_string().contains(&format!("sample {id}, field `img`")), "{error}");
    }
}

/// The size in the metadata decides how much memory an image gets, so a JPEG of another size must not be decoded.
#[test]
fn a_size_that_differs_from_the_metadata_is_an_error() {
    let form = ImageForm::new(2, 2).unwrap();
    let mut rgb = vec![0; 2 * form.image_bytes()];
    for at in [1, 3] {
        let batch = changed(|image| image[at] ^= 1);
        let error = threads(1).decode(&batch, 5, &form, 0, &mut rgb).unwrap_err();
        assert!(error.to_string().contains("but the metadata says"), "{error}");
    }
}

#[test]
fn a_transform_changes_a_batch_in_place_and_its_error_names_the_samples() {
    let reader = BetonReader::open(&Engine::new().unwrap(), vector()).unwrap();
    let batch = reader.read_batch(&[4, 2]).unwrap();
    let form = ImageForm::new(3, 2).unwrap();
    let mut plain = vec![0; 2 * form.image_bytes()];
    threads(2).decode(&batch, 5, &form, 0, &mut plain).unwrap();
    let inverted = threads(2).transform(|images, ids| {
        assert_eq!(ids, [4, 2]);
        images.iter_mut().for_each(|level| *level = !*level);
        Ok(())
    });
    let mut found = vec![0; plain.len()];
    inverted.decode(&batch, 5, &form, 0, &mut found).unwrap();
    assert!(found.iter().zip(&plain).all(|(found, plain)| *found == !plain));
    let failing = threads(2).transform(|_, _| Err("too bright".into()));
    let error = failing.decode(&batch, 5, &form, 0, &mut found).unwrap_err().to_string();
    assert!(
        error.ends_with("the transform of a batch of 2 samples (4, 2) failed: too bright"),
        "{error}"
    );
}

/// Whether libjpeg-turbo decodes.
const IS_TURBO: bool = cfg!(all(feature = "turbojpeg", target_os = "linux"));

/// The JPEGs that the fuzz target begins with.
fn seeds() -> Vec<(String, Vec<u8>)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/seeds/jpeg");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let named = |path: std::path::PathBuf| {
        (path.file_name().unwrap().to_str().unwrap().to_owned(), std::fs::read(&path).unwrap())
    };
    let mut seeds: Vec<_> = files.map(named).collect();
    seeds.sort();
    seeds
}

/// Decodes a JPEG with the size that its frame header has in `of`, into memory with these bytes.
fn decoded(jpeg: &[u8], of: &[u8], memory: u8) -> Result<Vec<u8>, BetonDamage> {
    let is_frame = |bytes: &[u8]| bytes[0] == 0xFF && [0xC0, 0xC2].contains(&bytes[1]);
    let at = of.windows(2).position(is_frame).unwrap() + 5;
    let number = |at: usize| u16::from_be_bytes([of[at], of[at + 1]]);
    let (height, width) = (number(at), number(at + 2));
    let image = Image { mode: ImageMode::Jpeg, width, height, bytes: jpeg };
    let mut rgb = vec![memory; image.rgb_bytes()];
    image.decode_into(&mut rgb).map(|()| rgb)
}

/// Returns the places of the first scan header and of the image data after it.
fn scan_and_data(jpeg: &[u8]) -> (usize, usize) {
    let scan = jpeg.windows(2).position(|marker| marker == [0xFF, 0xDA]).unwrap();
    (scan, scan + 2 + usize::from(jpeg[scan + 3]))
}

fn is_refused(broken: &[u8], of: &[u8]) -> bool {
    matches!(decoded(broken, of, 0), Err(BetonDamage::BadJpeg { .. }))
}

#[test]
fn jpegs_of_all_kinds_are_decoded() {
    let plain = |other: &str| {
        let name = if other == "separate_scans" { "halved" } else { "colour" };
        let (_, jpeg) = seeds().into_iter().find(|(found, _)| found == name).unwrap();
        decoded(&jpeg, &jpeg, 0).unwrap()
    };
    for (name, jpeg) in seeds() {
        let rgb = match decoded(&jpeg, &jpeg, 0) {
            Ok(rgb) => rgb,
            // zune-jpeg decoded some of them to other pixels.
            Err(damage) if name.ends_with("_scans") => {
                assert!(damage.to_string().contains("separate scans"), "{damage}");
                continue;
            }
            Err(damage) => panic!("{name}: {damage}"),
        };
        if name.contains("restarts") || name.contains("progressive") || name.contains("scans") {
            assert!(rgb == plain(&name), "{name}: other pixels than in one scan");
        }
        assert!(rgb == decoded(&jpeg, &jpeg, 0xAA).unwrap(), "{name}: pixels were not written");
        // Bytes after the end belong to something else: another image, or padding.
        let longer = [&jpeg[..], &jpeg[..100]].concat();
        assert!(rgb == decoded(&longer, &jpeg, 0).unwrap(), "{name}");
    }
}

/// zune-jpeg decoded these without an error: rows kept what the memory had before, or had made-up pixels.
#[test]
fn a_marker_in_the_image_data_is_an_error() {
    for (name, jpeg) in seeds() {
        let (scan, data) = scan_and_data(&jpeg);
        let stuffed = (data..jpeg.len()).filter(|at| jpeg[*at..].starts_with(&[0xFF, 0]));
        for at in stuffed {
            for marker in [&[0xFF, 0xFE, 0, 2][..], &[0xFF, 0xD9], &[0xFF, 0xD0], &jpeg[scan..data]]
            {
                let broken = [&jpeg[..at], marker, &jpeg[at + 2..]].concat();
                assert!(is_refused(&broken, &jpeg), "{name}, byte {at}: {marker:X?}");
            }
        }
    }
}

/// Some encoders write a restart after the last unit, and programs add segments. The first version of the check refused both.
#[test]
fn markers_behind_the_image_data_change_nothing() {
    for (name, jpeg) in seeds() {
        let Ok(rgb) = decoded(&jpeg, &jpeg, 0) else { continue };
        let end = jpeg.len() - 2;
        for marker in [&[0xFF, 0xFE, 0, 6, b'a', b'b', b'c', b'd'][..], &[0xFF, 0xD0]] {
            let longer = [&jpeg[..end], marker, &jpeg[end..]].concat();
            assert!(
                decoded(&longer, &jpeg, 0).is_ok_and(|found| found == rgb),
                "{name}: {marker:X?}"
            );
        }
    }
}

/// zune-jpeg decoded a first colour with fewer samples than the others to other pixels.
#[test]
fn a_first_colour_with_fewer_samples_is_refused() {
    if IS_TURBO {
        return;
    }
    let (_, mut jpeg) = seeds().into_iter().find(|(name, _)| name == "halved").unwrap();
    let frame = jpeg.windows(2).position(|marker| marker == [0xFF, 0xC0]).unwrap();
    jpeg.swap(frame + 11, frame + 14);
    let damage = decoded(&jpeg, &jpeg, 0).unwrap_err().to_string();
    assert!(damage.contains("fewer samples"), "{damage}");
}

/// zune-jpeg made up the pixels that were missing.
#[test]
fn a_truncated_jpeg_is_an_error_also_if_it_has_an_end() {
    for (name, jpeg) in seeds() {
        let (_, data) = scan_and_data(&jpeg);
        for cut in data..jpeg.len() - 2 {
            assert!(is_refused(&jpeg[..cut], &jpeg), "{name}, {cut} bytes of {}", jpeg.len());
        }
        // libjpeg-turbo takes the scans that are there for the whole image.
        if IS_TURBO && (name.contains("progressive") || name.contains("scans")) {
            continue;
        }
        // The bits of the last byte may be those that fill it up.
        for cut in data..jpeg.len() - 4 {
            let closed = [&jpeg[..cut], &[0xFF, 0xD9]].concat();
            assert!(is_refused(&closed, &jpeg), "{name}, {cut} bytes of {}", jpeg.len());
        }
    }
}

/// The restarts tell how far the data is, so one too many or too few is damage.
#[test]
fn restarts_that_do_not_fit_are_an_error() {
    let (_, jpeg) = seeds().into_iter().find(|(name, _)| name == "restarts").unwrap();
    let (_, data) = scan_and_data(&jpeg);
    let restarts: Vec<_> = (data..jpeg.len())
        .filter(|at| jpeg[*at] == 0xFF && (0xD0..0xD8).contains(&jpeg[at + 1]))
        .collect();
    assert!(restarts.len() > 2);
    for part in restarts.windows(2) {
        let half = (part[0] + 2 + part[1]) / 2;
        let broken = [&jpeg[..half], &jpeg[part[1]..]].concat();
        assert!(is_refused(&broken, &jpeg), "cut between the restarts at {part:?}");
    }
    for at in restarts {
        let broken = [&jpeg[..at], &jpeg[at + 2..]].concat();
        assert!(is_refused(&broken, &jpeg), "without the restart at byte {at}");
        let mut broken = jpeg.clone();
        broken[at + 1] ^= 1;
        assert!(is_refused(&broken, &jpeg), "another restart at byte {at}");
        broken[at + 1] = 0;
        assert!(is_refused(&broken, &jpeg), "data instead of the restart at byte {at}");
    }
}
