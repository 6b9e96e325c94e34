//! Paths that cannot be read, and handles of other backends, are refused with an error that names
//! them.

use std::path::Path;

use crate::conformance::arena::{Want, check_batch, try_batch};
use crate::conformance::rig::{Rig, open};
use crate::{Error, MemoryBackend, Read, ReadBackend};

/// Panics unless the file cannot be opened and the error names it.
#[track_caller]
fn open_error(backend: &dyn ReadBackend, path: &Path) -> Error {
    match backend.open(path) {
        Ok(_) => panic!("{} was opened", path.display()),
        Err(error) => {
            assert_eq!(error.path(), Some(path), "{error}");
            assert!(error.to_string().contains(&*path.to_string_lossy()), "{error}");
            error
        }
    }
}

pub(in crate::conformance) fn missing_file(rig: &Rig<'_>) {
    let backend = rig.backend();
    for name in ["missing", "missing/in/a/missing/directory"] {
        let error = open_error(&*backend, &rig.dir().join(name));
        let Error::Open { source, .. } = &error else { panic!("{error:?}") };
        assert_eq!(source.kind(), std::io::ErrorKind::NotFound);
    }
    assert!(backend.open(Path::new("")).is_err());
}

pub(in crate::conformance) fn directory(rig: &Rig<'_>) {
    let error = open_error(&*rig.backend(), rig.dir());
    let Error::NotAFile { what, .. } = &error else { panic!("{error:?}") };
    assert_eq!(*what, "directory");
}

pub(in crate::conformance) fn foreign_handle(rig: &Rig<'_>) {
    let (backend, data) = (rig.backend(), rig.file("data", 10_000));
    let own = open(&*backend, &data);
    let memory = MemoryBackend::new();
    for foreign in [open(&*rig.backend(), &data), open(&memory, &data)] {
        let mut bytes = [0; 10];
        let (first, second) = bytes.split_at_mut(5);
        let mut reads = [Read::new(&own, 0, first), Read::new(&foreign, 0, second)];
        let outcomes = [
            backend.read_batch(&mut reads),
            backend.len(&foreign).map(drop),
            backend.prefetch(&foreign, 0..10),
            backend.release(&foreign, 0..10),
        ];
        for (at, outcome) in outcomes.into_iter().enumerate() {
            let Err(error) = outcome else { panic!("{at}: a foreign handle was taken") };
            assert!(matches!(error, Error::ForeignHandle { .. }), "{at}: {error:?}");
            assert_eq!(error.path(), Some(data.path()));
        }
        // A backend that maps nothing need not look at the handle.
        let mapped = backend.map(&foreign, 0..10);
        assert!(matches!(mapped, Ok(None) | Err(Error::ForeignHandle { .. })), "{mapped:?}");
    }
    check_batch(&*backend, &[Want::new(&own, &data, 0, 10_000)]);
}

pub(in crate::conformance) fn errors_name_the_file_and_the_place(rig: &Rig<'_>) {
    let (backend, data) = (rig.backend(), rig.file("data", 10_000));
    let file = open(&*backend, &data);
    for offset in [9_999, 123_456_789] {
        let error = try_batch(&*backend, &[Want::new(&file, &data, offset, 77)]).unwrap_err();
        assert_eq!((error.path(), error.offset()), (Some(data.path()), Some(offset)));
        let text = error.to_string();
        let parts = [data.path().display().to_string(), offset.to_string(), "77".into()];
        for part in parts.into_iter().chain(["10000".into()]) {
            assert!(text.contains(&part), "`{part}` is missing in: {text}");
        }
    }
}

#[cfg(unix)]
pub(in crate::conformance) use unix::*;

#[cfg(unix)]
mod unix {
    use std::ffi::OsStr;
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;
    use crate::BackendOptions;
    use crate::conformance::data::DataFile;
    use crate::conformance::process;

    /// Opening a pipe waits for a writer, and there will be none.
    pub(in crate::conformance) fn fifo(rig: &Rig<'_>) {
        rig.in_child(|rig| {
            let path = rig.dir().join("fifo");
            process::make_fifo(&path);
            let error = open_error(&*rig.backend(), &path);
            assert!(matches!(error, Error::NotAFile { .. }), "{error:?}");
            let error = open_error(&*rig.backend(), Path::new("/dev/zero"));
            assert!(matches!(error, Error::NotAFile { .. }), "{error:?}");
        });
    }

    /// Root may read everything, so the child gives that up. The paths are relative, and stay so:
    /// the child may not search a directory above the working one.
    pub(in crate::conformance) fn no_permission(rig: &Rig<'_>) {
        rig.in_child(|rig| {
            let closed = rig.dir().join("closed");
            let open_to_all = closed.join("open");
            std::fs::create_dir_all(&open_to_all).unwrap();
            set_permissions(&closed, Permissions::from_mode(0o700)).unwrap();
            set_permissions(&open_to_all, Permissions::from_mode(0o755)).unwrap();
            std::env::set_current_dir(&open_to_all).unwrap();
            let [secret, one, two] =
                ["secret", "one", "two"].map(|name| DataFile::create(name.into(), 10_000));
            set_permissions("secret", Permissions::from_mode(0o000)).unwrap();
            for readable in ["one", "two"] {
                set_permissions(readable, Permissions::from_mode(0o644)).unwrap();
            }
            process::become_nobody();

            let options = BackendOptions { open_files_max: 1, ..BackendOptions::default() };
            let backend = rig.backend_with(&options);
            let error = open_error(&*backend, secret.path());
            assert!(matches!(error, Error::Open { .. }), "{error:?}");
            assert_eq!(error.raw_os_error(), Some(libc::EACCES), "{error}");
            assert!(error.to_string().contains("check the permissions"), "{error}");
            let handles = [&one, &two].map(|data| open(&*backend, data));
            // Only one file can be open, so each read opens its file again.
            for (file, data) in handles.iter().zip([&one, &two]).cycle().take(4) {
                check_batch(&*backend, &[Want::new(file, data, 1, 9_999)]);
            }
        });
    }

    pub(in crate::conformance) fn odd_paths(rig: &Rig<'_>) {
        let backend = rig.backend();
        let names =
            [b"with space".as_slice(), "ünïcode – 文".as_bytes(), b"new\nline", b"\xff\xfe"];
        for name in names {
            let path = rig.dir().join(OsStr::from_bytes(name));
            let data = DataFile::create(path, 5000);
            let file = open(&*backend, &data);
            check_batch(&*backend, &[Want::new(&file, &data, 1, 4000)]);
            let past = try_batch(&*backend, &[Want::new(&file, &data, 1, 5000)]).unwrap_err();
            assert_eq!(past.path(), Some(data.path()));
        }
        let data = rig.file("target", 5000);
        let link = rig.dir().join("link");
        symlink(data.path(), &link).unwrap();
        let file = backend.open(&link).unwrap();
        assert_eq!(file.path(), link);
        check_batch(&*backend, &[Want::new(&file, &data, 1, 4000)]);
    }
}
