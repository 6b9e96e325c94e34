//! The distribution of samples over pages, and samples that fit in no page.

use ringmain::Error;
use ringmain::beton::{Field, FieldKind, RegionAlignment};

use crate::model::{File, Value, blobs, bytes_field, round_trip, writer};
use crate::support::temp_dir;

const PAGE: usize = 2 << 20;

/// Returns the pages of samples with these sizes, counted from the first.
fn pages_of(sizes: &[usize], alignment: RegionAlignment) -> Vec<u64> {
    let dir = temp_dir();
    let path = dir.path().join("a.beton");
    let pages = [false, true].map(|is_deterministic| {
        let writer = writer(bytes_field()).workers(1).alignment(alignment);
        let writer = writer.deterministic(is_deterministic);
        let (report, file) = round_trip(&path, &writer, &bytes_field(), alignment, &blobs(sizes));
        let pages: Vec<u64> = (0..sizes.len() as u64).map(|id| file.page_of(id) - 1).collect();
        assert_eq!(report.pages, pages.last().unwrap() + 1);
        pages
    });
    assert_eq!(pages[0], pages[1]);
    pages[0].clone()
}

#[test]
fn a_page_is_filled_to_its_last_byte() {
    use RegionAlignment::{Block, Packed, Sector};
    assert_eq!(pages_of(&[PAGE, 1], Packed), [0, 1]);
    assert_eq!(pages_of(&[PAGE - 1, 1, 1], Packed), [0, 0, 1]);
    assert_eq!(pages_of(&[PAGE - 1, 2, 1], Packed), [0, 1, 1]);
    // An empty region takes a byte.
    assert_eq!(pages_of(&[0, 0, PAGE - 2, 0], Packed), [0, 0, 0, 1]);
    assert_eq!(pages_of(&[PAGE - 512, 512, 1], Sector), [0, 0, 1]);
    assert_eq!(pages_of(&[PAGE - 511, 511, 1], Sector), [0, 1, 1]);
    assert_eq!(pages_of(&[1, PAGE - 4096, 1], Block), [0, 0, 1]);
    assert_eq!(pages_of(&[1, PAGE - 4095, 1], Block), [0, 1, 2]);
}

/// The first regions of a sample are already in the page when the last does not fit.
#[test]
fn a_sample_is_in_one_page_with_all_its_regions() {
    let names = ["a", "b", "c", "d"];
    let fields: Vec<Field> =
        names.iter().map(|name| Field::new(name, FieldKind::Bytes).unwrap()).collect();
    let dir = temp_dir();
    for alignment in RegionAlignment::ALL {
        for is_deterministic in [false, true] {
            let sample = |id: usize| {
                (0..4).map(|at| Value::Bytes(vec![id as u8 * 4 + at; 100_001])).collect()
            };
            let samples: Vec<Vec<Value>> = (0..20).map(sample).collect();
            let writer = writer(fields.clone()).alignment(alignment).workers(1);
            let writer = writer.deterministic(is_deterministic);
            let path = dir.path().join("a.beton");
            let (report, _) = round_trip(&path, &writer, &fields, alignment, &samples);
            assert_eq!(report.pages, 4);
        }
    }
}

#[test]
fn a_sample_that_fits_in_no_page_is_refused() {
    let fields: Vec<Field> =
        ["a", "b"].iter().map(|name| Field::new(name, FieldKind::Bytes).unwrap()).collect();
    let dir = temp_dir();
    let path = dir.path().join("a.beton");
    let cases = [
        (RegionAlignment::Packed, PAGE, 1, PAGE + 1),
        (RegionAlignment::Packed, PAGE, 0, PAGE + 1),
        (RegionAlignment::Packed, 5, 3 * PAGE, 3 * PAGE + 5),
        (RegionAlignment::Packed, 3 * PAGE, 5, 3 * PAGE + 5),
        (RegionAlignment::Block, 1, PAGE - 4095, PAGE + 1),
    ];
    for (alignment, first, second, needed) in cases {
        for is_deterministic in [false, true] {
            let writer = writer(fields.clone()).alignment(alignment);
            let outcome =
                writer.deterministic(is_deterministic).write_indexed(&path, 9, |id, to| {
                    let (first, second) = if id == 7 { (first, second) } else { (3, 4) };
                    to.bytes(&vec![1; first])?.bytes(&vec![2; second])?;
                    Ok(())
                });
            let error = outcome.unwrap_err();
            let reason = format!("its {needed} bytes do not fit in a page of {PAGE}");
            assert!(matches!(error, Error::InvalidItem { .. }), "{error}");
            assert!(error.sample() == Some(7) && error.to_string().contains(&reason), "{error}");
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        }
    }
}

#[test]
fn samples_without_regions_have_no_pages() {
    let dir = temp_dir();
    let path = dir.path().join("a.beton");
    let fields = vec![Field::new("a", FieldKind::Int).unwrap()];
    let samples: Vec<Vec<Value>> = (0..1000).map(|id| vec![Value::Int(id)]).collect();
    let (report, file) =
        round_trip(&path, &writer(fields.clone()), &fields, RegionAlignment::Packed, &samples);
    assert_eq!((report.pages, file.table.len()), (0, 0));
    assert_eq!(report.file_bytes, 24 + 1041 + 8000);

    let (report, _) =
        round_trip(&path, &writer(fields.clone()), &fields, RegionAlignment::Packed, &[]);
    assert_eq!((report.samples, report.file_bytes), (0, 24 + 1041));
}

/// The first page begins at the end of the metadata if that is a page boundary.
#[test]
fn metadata_may_end_where_a_page_begins() {
    let dir = temp_dir();
    let path = dir.path().join("a.beton");
    // The smallest n with 24 + 1041 + 13·n = k·2 MiB.
    let samples = (1..).find(|n| (24 + 1041 + 13 * n) % PAGE == 0).unwrap() as u64;
    assert!(samples < 3_000_000, "{samples}");
    let fields = vec![Field::new("a", FieldKind::RgbImage).unwrap()];
    for (samples, more) in [(samples, 0), (samples + 1, PAGE as u64)] {
        writer(fields.clone()).page_bytes(64 << 20).write_indexed(&path, 0, |_, _| Ok(())).unwrap();
        let report = writer(fields.clone())
            .write_indexed(&path, samples, |_, to| {
                to.image_raw(1, 1, &[1, 2, 3])?;
                Ok(())
            })
            .unwrap();
        let pages_at = (24 + 1041 + 13 * samples).next_multiple_of(PAGE as u64);
        assert_eq!(pages_at, (24 + 1041 + 13 * (samples - more.min(1))) + more);
        let table = samples * 24;
        assert_eq!(report.file_bytes, pages_at + report.pages * PAGE as u64 + table);
    }
}

#[test]
fn pages_can_be_larger() {
    let dir = temp_dir();
    let path = dir.path().join("a.beton");
    let fields = bytes_field();
    let writer = writer(fields.clone()).page_bytes(16 << 20).workers(2);
    writer
        .write_indexed(&path, 3, |id, to| {
            to.bytes(&vec![id as u8; 9 << 20])?;
            Ok(())
        })
        .unwrap();
    let file = std::fs::read(&path).unwrap();
    let file = File::take_apart(&file, &fields, RegionAlignment::Packed);
    assert_eq!(file.header.page_bytes, 16 << 20);
}
