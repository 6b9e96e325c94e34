//! Reads every sample of the vector in every way.

use ringmain::Error;
use ringmain::beton::{BetonReader, FieldKind};
use ringmain::{Engine, Unchanging};

use crate::expected::{SAMPLES, check_batch, vector};
use crate::support::engines_for;

fn readers() -> impl Iterator<Item = (String, BetonReader)> {
    engines_for(&vector()).into_iter().map(|engine| {
        let reader = BetonReader::open(&engine, vector()).unwrap();
        (engine.backend().kind().to_string(), reader)
    })
}

#[test]
fn the_file_describes_itself() {
    let reader = BetonReader::open(&Engine::new().unwrap(), vector()).unwrap();
    let names: Vec<_> = reader.fields().iter().map(|field| field.name()).collect();
    assert_eq!(names, ["label", "score", "blob", "mat", "meta", "img"]);
    assert_eq!((reader.len(), reader.pages(), reader.page_bytes()), (SAMPLES, 2, 2 << 20));
    assert_eq!((reader.regions(), reader.region_alignment()), (1200, 1));
    assert_eq!(*reader.fields()[4].kind(), FieldKind::Json);
    assert_eq!(reader.field_index("mat").unwrap(), 3);
    let error = reader.field_index("nothing").unwrap_err();
    assert!(matches!(error, Error::NoSuchItem { .. }), "{error}");
}

#[test]
fn every_sample_can_be_read_alone() {
    for (kind, reader) in readers() {
        for id in 0..SAMPLES {
            reader.check_sample(id).unwrap();
            let sample = reader.read_sample(id).unwrap();
            assert_eq!(sample.id(), id);
            check_batch(sample.as_batch(), &kind);
        }
    }
}

#[test]
fn every_sample_can_be_read_in_batches_of_any_order() {
    for (kind, reader) in readers() {
        let ids: Vec<u64> = (0..SAMPLES).map(|at| at * 77 % SAMPLES).collect();
        for batch_size in [1, 7, 64, 300] {
            for ids in ids.chunks(batch_size) {
                let batch = reader.read_batch(ids).unwrap();
                assert_eq!(batch.ids(), ids);
                check_batch(&batch, &kind);
            }
        }
        check_batch(&reader.read_batch(&[5, 5, 5, 0, 5]).unwrap(), &kind);
        assert!(reader.read_batch(&[]).unwrap().is_empty());
    }
}

/// The columns of a batch must equal its values.
#[test]
fn columns_are_one_array_over_the_batch_or_have_offsets() {
    for (kind, reader) in readers() {
        let batch = reader.read_batch(&[299, 0, 17]).unwrap();
        let one = |id| reader.read_sample(id).unwrap();
        let ids = [299, 0, 17];
        for (at, id) in ids.into_iter().enumerate() {
            let (sample, whole) = (one(id), &batch);
            let sample = sample.as_batch();
            assert_eq!(sample.ints(0).unwrap()[0], whole.ints(0).unwrap()[at], "{kind}");
            assert_eq!(sample.floats(1).unwrap()[0], whole.floats(1).unwrap()[at], "{kind}");
            let arrays = whole.arrays(3).unwrap();
            assert_eq!(arrays.bytes.len(), 3 * 96);
            assert_eq!(sample.arrays(3).unwrap().bytes, &arrays.bytes[at * 96..][..96], "{kind}");
            for field in [2, 4, 5] {
                let blobs = whole.blobs(field).unwrap();
                assert_eq!((blobs.offsets.len(), blobs.get(3)), (4, None));
                assert_eq!(sample.blobs(field).unwrap().get(0), blobs.get(at), "{kind}");
            }
        }
        assert!(batch.ints(1).is_none() && batch.floats(0).is_none() && batch.arrays(2).is_none());
        assert!(batch.blobs(3).is_none() && batch.ints(99).is_none() && batch.blobs(99).is_none());
    }
}

#[test]
fn a_mapping_returns_regions_without_a_copy() {
    for (kind, reader) in readers() {
        let mapped = reader.map_samples(&[7, 42]).unwrap();
        assert_eq!(mapped.is_some(), kind == "mmap", "{kind}");
        let Some(mapped) = mapped else { continue };
        // SAFETY: no process writes to the file.
        let unchanging = unsafe { Unchanging::promise() };
        let batch = reader.read_batch(&[7, 42]).unwrap();
        assert_eq!(mapped.ids(), [7, 42]);
        for at in 0..2 {
            for field in [2, 4, 5] {
                let region = mapped.region(at, field, unchanging);
                assert_eq!(region, batch.blobs(field).unwrap().get(at));
            }
            let none = [(at, 0), (at, 99), (2, 2)];
            assert!(
                none.iter().all(|(at, field)| mapped.region(*at, *field, unchanging).is_none())
            );
        }
    }
}

#[test]
fn a_missing_sample_is_an_error() {
    let reader = BetonReader::open(&Engine::new().unwrap(), vector()).unwrap();
    for id in [SAMPLES, u64::MAX] {
        for error in [
            reader.read_sample(id).unwrap_err(),
            reader.read_batch(&[0, id]).unwrap_err(),
            reader.check_sample(id).unwrap_err(),
            reader.member(id, 0).unwrap_err(),
        ] {
            assert!(matches!(error, Error::NoSuchItem { .. }), "{error}");
            assert_eq!(error.sample(), Some(id), "{error}");
            assert!(error.to_string().contains("300 samples"), "{error}");
        }
    }
}
