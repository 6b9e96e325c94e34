//! The order of samples, and its independence of the workers.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use ringmain::Error;
use ringmain::beton::{RegionAlignment, WriteProgress};

use crate::model::{File, Value, all_fields, bytes_field, give_all, jpeg, writer};
use crate::support::temp_dir;

/// Returns a sample with each kind of field, of very different sizes.
fn sample(id: u64) -> Vec<Value> {
    let size = (id.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 48) as usize; // up to 64 KiB
    let region = id.is_multiple_of(3).then(|| vec![id as u8; size % 77]);
    vec![
        Value::Int(id as i64),
        Value::Jpeg(jpeg(3, 4, size % 1000)),
        Value::Float(id as f64 / 3.0),
        Value::Bytes(vec![id as u8; size]),
        Value::Array(vec![id as u8; 24]),
        Value::Json(format!("{{\"id\":{id}}}")),
        Value::Array(vec![id as u8; 10]),
        Value::Custom(id as u32, region),
    ]
}

#[test]
fn a_deterministic_file_is_the_same_for_any_number_of_workers() {
    let dir = temp_dir();
    for alignment in RegionAlignment::ALL {
        let written = |workers: usize| {
            let path = dir.path().join("a.beton");
            writer(all_fields())
                .deterministic(true)
                .alignment(alignment)
                .workers(workers)
                .write_indexed(&path, 200, |id, to| {
                    if id % 7 == workers as u64 % 7 {
                        // Some samples take longer, different ones each time.
                        std::thread::sleep(Duration::from_micros(300));
                    }
                    give_all(&sample(id), to)
                })
                .unwrap();
            let bytes = std::fs::read(&path).unwrap();
            let file = File::take_apart(&bytes, &all_fields(), alignment);
            assert!(file.table.is_sorted_by_key(|row| (row.sample, row.ptr)));
            bytes
        };
        let one = written(1);
        for workers in [2, 3, 8] {
            assert!(written(workers) == one, "{workers} workers, {alignment:?}");
        }
    }
}

#[test]
fn an_iterator_writes_the_same_samples_as_an_index() {
    let dir = temp_dir();
    let path = dir.path().join("a.beton");
    for (workers, is_deterministic) in [(1, false), (3, false), (3, true)] {
        let writer = writer(all_fields()).workers(workers).deterministic(is_deterministic);
        let samples = (0..150).map(sample);
        writer.write_iter(&path, 150, samples, |values, to| give_all(&values, to)).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let file = File::take_apart(&bytes, &all_fields(), RegionAlignment::Packed);
        assert!((0..150).map(sample).eq(file.samples));
    }
}

#[test]
fn a_wrong_number_of_samples_is_an_error() {
    let dir = temp_dir();
    let path = dir.path().join("a.beton");
    std::fs::write(&path, b"old").unwrap();
    for (declared, found) in [(10, 0), (10, 9), (300, 299), (10, 11), (0, 1), (10, 100)] {
        for is_deterministic in [false, true] {
            let writer = writer(bytes_field()).workers(3).deterministic(is_deterministic);
            let error = writer
                .write_iter(&path, declared, 0..found, |_, to| {
                    to.bytes(b"x")?;
                    Ok(())
                })
                .unwrap_err();
            let came = if found > declared { "more".to_owned() } else { format!("only {found}") };
            let reason =
                format!("{declared} samples were declared, but the iterator yielded {came}");
            assert!(matches!(&error, Error::InvalidItem { item: None, .. }), "{error}");
            assert!(error.to_string().contains(&reason), "{declared} {found}: {error}");
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
            assert_eq!(std::fs::read(&path).unwrap(), b"old");
        }
    }
}

#[test]
fn every_sample_is_made_once() {
    let dir = temp_dir();
    let made: Vec<AtomicU64> = (0..5000).map(|_| AtomicU64::new(0)).collect();
    writer(bytes_field())
        .workers(4)
        .write_indexed(dir.path().join("a.beton"), 5000, |id, to| {
            made[id as usize].fetch_add(1, Ordering::Relaxed);
            to.bytes(&[0; 100])?;
            Ok(())
        })
        .unwrap();
    assert!(made.iter().all(|made| made.load(Ordering::Relaxed) == 1));
}

#[test]
fn progress_ends_with_all_samples() {
    let dir = temp_dir();
    let told: &'static Mutex<Vec<WriteProgress>> = Box::leak(Box::default());
    writer(bytes_field())
        .workers(3)
        .progress(|progress| told.lock().unwrap().push(progress))
        .write_indexed(dir.path().join("a.beton"), 1000, |_, to| {
            to.bytes(&[1; 5000])?;
            Ok(())
        })
        .unwrap();
    let told = told.lock().unwrap();
    let last = told.last().unwrap();
    assert!(told.is_sorted_by_key(|progress| (progress.samples, progress.bytes)), "{told:?}");
    assert_eq!(*last, WriteProgress { samples: 1000, bytes: 5_000_000 });
    assert!(told.len() > 4, "{told:?}");
}

/// Items may be large, and all workers should share a slow iterator.
#[test]
fn few_items_of_an_iterator_are_taken_ahead() {
    let dir = temp_dir();
    let (taken, made, ahead) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    let items = (0..2000u64).inspect(|_| {
        let taken = taken.fetch_add(1, Ordering::Relaxed) + 1;
        ahead.fetch_max(taken - made.load(Ordering::Relaxed), Ordering::Relaxed);
    });
    writer(bytes_field())
        .workers(2)
        .write_iter(dir.path().join("a.beton"), 2000, items, |id, to| {
            to.bytes(&id.to_le_bytes())?;
            made.fetch_add(1, Ordering::Relaxed);
            Ok(())
        })
        .unwrap();
    assert!(ahead.load(Ordering::Relaxed) <= 2 * 8, "{ahead:?} items");
}
