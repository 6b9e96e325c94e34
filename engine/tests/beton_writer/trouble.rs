//! Failures while writing are reported, and leave no file.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ringmain::Kind;
use ringmain::beton::{
    ArraySpec, BetonDamage, BetonWriter, CustomRegion, Field, FieldKind, SampleBuilder,
    SampleError, WriteReport,
};
use ringmain::{Damage, Error, Item};

use crate::model::{all_fields, bytes_field, give_all, writer};
use crate::support::temp_dir;

fn is_empty(dir: &Path) -> bool {
    std::fs::read_dir(dir).unwrap().count() == 0
}

#[derive(Debug, thiserror::Error)]
#[error("no such picture")]
struct NoPicture;

#[test]
fn an_error_of_the_callers_function_stops_all_workers() {
    for is_deterministic in [false, true] {
        let dir = temp_dir();
        let made = AtomicU64::new(0);
        let writer = writer(bytes_field()).workers(4).deterministic(is_deterministic);
        let error = writer
            .write_indexed(dir.path().join("a.beton"), 1_000_000, |id, to| {
                made.fetch_add(1, Ordering::Relaxed);
                if id > 5000 {
                    // All remaining samples would take minutes.
                    std::thread::sleep(Duration::from_millis(1));
                }
                to.bytes(&[1; 1000])?;
                if id == 5000 { Err(NoPicture.into()) } else { Ok(()) }
            })
            .unwrap_err();
        assert_eq!(error.sample(), Some(5000));
        let Error::Maker { cause, .. } = &error else { panic!("{error}") };
        assert!(cause.is::<NoPicture>());
        assert!(error.to_string().contains("no such picture"), "{error}");
        assert!(made.load(Ordering::Relaxed) < 500_000);
        assert!(is_empty(dir.path()));
    }
}

#[test]
fn a_panic_of_the_callers_function_stops_all_workers() {
    for is_deterministic in [false, true] {
        let dir = temp_dir();
        let made = AtomicU64::new(0);
        let error = writer(bytes_field())
            .workers(4)
            .deterministic(is_deterministic)
            .write_indexed(dir.path().join("a.beton"), 100_000, |id, to| {
                assert_ne!(id, 7, "seven");
                made.fetch_add(1, Ordering::Relaxed);
                // All samples would take minutes.
                std::thread::sleep(Duration::from_millis(20));
                to.bytes(&[1; 1000])?;
                Ok(())
            })
            .unwrap_err();
        let Error::Panicked { message, .. } = &error else { panic!("{error}") };
        assert!(message.contains("seven"), "{message}");
        assert!(is_empty(dir.path()));
        let made = made.load(Ordering::Relaxed);
        assert!(made < 50_000, "the other workers continued: {made} samples");
    }
}

#[test]
fn a_panic_of_the_iterator_is_returned() {
    let dir = temp_dir();
    let items = (0..100).inspect(|at| assert_ne!(*at, 50, "fifty"));
    let outcome = writer(bytes_field()).workers(3).deterministic(true).write_iter(
        dir.path().join("a.beton"),
        100,
        items,
        |_, to| {
            to.bytes(b"x")?;
            Ok(())
        },
    );
    let error = outcome.unwrap_err();
    assert!(matches!(&error, Error::Panicked { .. }), "{error}");
    assert!(is_empty(dir.path()));
}

/// Writes one sample with this function.
fn write_one(
    fields: Vec<Field>,
    make: impl Fn(&mut SampleBuilder<'_>) -> Result<(), SampleError> + Sync,
) -> Result<WriteReport, Error> {
    let dir = temp_dir();
    let outcome =
        writer(fields).write_indexed(dir.path().join("a.beton"), 1, |_, sample| make(sample));
    assert_eq!(outcome.is_err(), is_empty(dir.path()));
    outcome
}

fn check_refused(
    kind: FieldKind,
    part: &str,
    make: impl Fn(&mut SampleBuilder<'_>) -> Result<(), SampleError> + Sync,
) {
    let error = write_one(vec![Field::new("it", kind).unwrap()], make).unwrap_err();
    let is_named = matches!(&error, Error::InvalidItem { item: Some(Item::Sample { id: 0, field: Some(field) }), .. }
        if &**field == "it" || field.is_empty());
    assert!(is_named && error.to_string().contains(part), "`{part}`: {error}");
}

#[test]
fn values_that_do_not_fit_their_field_are_refused() {
    let spec = || ArraySpec::new(Kind::F32.into(), &[2]).unwrap();
    let custom = || FieldKind::Custom { type_id: 255 };
    check_refused(FieldKind::Int, "cannot take a float", |to| Ok(to.float(1.0).map(drop)?));
    check_refused(FieldKind::Float, "cannot take an int", |to| Ok(to.int(1).map(drop)?));
    check_refused(FieldKind::Json, "cannot take bytes", |to| Ok(to.bytes(b"1").map(drop)?));
    check_refused(FieldKind::Json, "not JSON", |to| Ok(to.json("{").map(drop)?));
    check_refused(FieldKind::Json, "not JSON", |to| Ok(to.json("1\0").map(drop)?));
    check_refused(FieldKind::NdArray(spec()), "have 8", |to| Ok(to.array(&[0; 7]).map(drop)?));
    check_refused(FieldKind::RgbImage, "not a raw", |to| {
        Ok(to.image_raw(2, 2, &[0; 11]).map(drop)?)
    });
    check_refused(FieldKind::RgbImage, "not a raw", |to| Ok(to.image_raw(0, 2, &[]).map(drop)?));
    check_refused(FieldKind::RgbImage, "not a JPEG", |to| {
        Ok(to.image_jpeg(b"\x89PNG").map(drop)?)
    });
    check_refused(custom(), "does not have the size", |to| {
        Ok(to.custom(&[0; 11], None).map(drop)?)
    });
    check_refused(custom(), "does not fit in a member", |to| {
        let region = CustomRegion { bytes: b"x", ptr_at: 5 };
        Ok(to.custom(&[0; 12], Some(region)).map(drop)?)
    });
    check_refused(FieldKind::Int, "no value", |_| Ok(()));
    check_refused(FieldKind::Int, "too many", |to| Ok(to.int(1)?.int(2).map(drop)?));
    // The error is reported even if the caller's function ignores it.
    check_refused(FieldKind::Int, "was refused", |to| {
        let _ = to.float(1.0);
        Ok(())
    });
}

#[test]
fn impossible_options_are_refused() {
    let dir = temp_dir();
    let path = dir.path().join("a.beton");
    let write = |writer: BetonWriter| writer.write_indexed(&path, 1, |_, _| Ok(())).unwrap_err();
    for page_bytes in [0, 1 << 20, 3 << 20, u32::MAX] {
        let error = write(BetonWriter::new(bytes_field()).page_bytes(page_bytes));
        assert!(matches!(&error, Error::InvalidOption { option: "page_bytes", .. }), "{error}");
    }
    let error = write(BetonWriter::new([]));
    assert!(matches!(&error, Error::InvalidOption { option: "fields", .. }), "{error}");
    let twice = [bytes_field(), bytes_field()].concat();
    assert!(write(BetonWriter::new(twice)).to_string().contains("data"));
    let error = write(BetonWriter::new(all_fields()));
    assert!(
        matches!(
            error.damage(),
            Some(Damage::Beton(BetonDamage::UnknownType { type_id: 255, .. }))
        ),
        "{error}"
    );
    let scalar = FieldKind::NdArray(ArraySpec::new(Kind::F32.into(), &[]).unwrap());
    let error = write(BetonWriter::new([Field::new("a", scalar).unwrap()]));
    assert_eq!(error.item(), Some(&Item::Field("a".into())), "{error}");
    let many = BetonWriter::new(bytes_field()).write_indexed(&path, u64::MAX, |_, _| Ok(()));
    let error = many.unwrap_err();
    assert!(matches!(&error, Error::InvalidOption { option: "samples", .. }), "{error}");
    assert!(is_empty(dir.path()));
}

#[test]
fn an_impossible_path_is_refused() {
    let dir = temp_dir();
    let write = |path: &Path| {
        writer(all_fields()).write_indexed(path, 1, |_, to| give_all(&[], to)).unwrap_err()
    };
    for path in [dir.path().join("no/where.beton"), "/".into()] {
        let error = write(&path);
        assert!(matches!(&error, Error::Io { .. } | Error::NotFound { .. }), "{error}");
        assert_eq!(error.path(), Some(&*path));
    }
}

/// The child of the test below: the shell has set the limit.
#[test]
#[ignore = "run by `a_file_that_cannot_grow_is_an_error`"]
#[cfg(unix)]
fn child_that_cannot_write_much() {
    let dir = std::env::var_os("RINGMAIN_BETON_DIR").unwrap();
    for is_deterministic in [false, true] {
        let path = Path::new(&dir).join("a.beton");
        let error = writer(bytes_field())
            .workers(2)
            .deterministic(is_deterministic)
            .write_indexed(path, 1000, |_, to| Ok(to.bytes(&[1; 50_000]).map(drop)?))
            .unwrap_err();
        assert!(matches!(&error, Error::Io { action: "writing a page", .. }), "{error}");
        assert!(error.to_string().contains("a.beton"), "{error}");
        assert!(is_empty(Path::new(&dir)));
    }
}

/// To the writer this looks like a full disk.
#[test]
#[cfg(unix)]
fn a_file_that_cannot_grow_is_an_error() {
    let dir = temp_dir();
    let test = std::env::current_exe().unwrap();
    // 8 MiB in blocks of 512 bytes, or 16 MiB in blocks of 1024.
    let script = "trap '' XFSZ; ulimit -f 16384; exec \"$0\" \"$@\"";
    let output = std::process::Command::new("sh")
        .args(["-c", script])
        .arg(test)
        .args(["--exact", "trouble::child_that_cannot_write_much", "--ignored"])
        .env("RINGMAIN_BETON_DIR", dir.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}
