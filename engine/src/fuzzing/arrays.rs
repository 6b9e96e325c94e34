//! Files that describe arrays.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::engine_over;
use crate::array::exca_infos::parse_infos;
use crate::array::layout::Layout;
use crate::array::npy::parse_header;
use crate::{Error, MemmapArrayInfo};

/// The bytes are a `.npy` file. An array that is understood fits a file, and its header has one length.
pub(super) fn npy_header(bytes: &[u8]) {
    let Ok(header) = parse_header(bytes) else { return };
    let (dtype, data_offset) = (header.dtype, header.data_offset);
    assert!(data_offset <= bytes.len() as u64, "the header ends after the file");

    // The header is understood without the bytes after it, and not without its own last byte.
    let alone = &bytes[..data_offset as usize];
    assert_eq!(parse_header(alone).as_ref(), Ok(&header));
    assert!(parse_header(&alone[..alone.len() - 1]).is_err());

    match Layout::array(data_offset, &header.shape, dtype.itemsize(), header.fortran) {
        Ok(layout) => {
            assert!(layout.offset + layout.nbytes() as u64 <= i64::MAX as u64);
            let whole = Some((data_offset, layout.nbytes()));
            assert_eq!(layout.byte_range(), whole, "a whole array is one range, in either order");
        }
        Err(error) => assert!(matches!(error, Error::Overflow { .. }), "{error}"),
    }
}

/// exca's info of an array, as its JSON files have it.
#[derive(Deserialize)]
struct Info {
    filename: String,
    offset: u64,
    shape: Vec<usize>,
    dtype: String,
}

/// The length of the data file: that of the real one among the seeds.
const DATA_BYTES: usize = 24_988;

/// The bytes are an info file, or a list of exca's infos. Each array lies in the data file, or is refused.
pub(super) fn exca_infos(bytes: &[u8]) {
    let mut infos = Vec::new();
    if let Ok(found) = parse_infos(bytes) {
        assert!(found.len() <= bytes.split(|byte| *byte == b'\n').count());
        infos.extend(found.into_iter().map(|(_, info)| info));
    }
    if let Ok(listed) = serde_json::from_slice::<Vec<Info>>(bytes) {
        let info = |Info { filename, offset, shape, dtype }| MemmapArrayInfo {
            filename: PathBuf::from(filename),
            offset,
            shape,
            dtype,
        };
        infos.extend(listed.into_iter().map(info));
    }
    let data: Vec<u8> = match infos.len() {
        0 => return,
        _ => (0..DATA_BYTES).map(|at| (at * 31 % 251) as u8).collect(),
    };
    infos.iter().take(16).for_each(|info| check_exca_info(info, &data));
}

fn check_exca_info(info: &MemmapArrayInfo, data: &[u8]) {
    let folder = Path::new("fuzzed");
    let path = folder.join(&info.filename);
    let Some(name) = path.to_str().filter(|name| !name.contains('\0')) else { return };
    let engine = engine_over(&[(name, data)]);
    match engine.open_exca(folder, info) {
        Ok(view) => {
            let (start, len) = (info.offset as usize, view.nbytes());
            assert_eq!((view.offset(), view.shape()), (info.offset, &info.shape[..]));
            assert!(len == 0 || start + len <= DATA_BYTES, "{info:?} is not in the file");
            let read = view.read_buffer().expect("the array lies in the file");
            assert!(len == 0 || *read == data[start..start + len], "{info:?}");
        }
        Err(Error::OutsideFile { path: named, file_len, .. }) => {
            assert_eq!((named.as_path(), file_len), (path.as_path(), DATA_BYTES as u64));
        }
        Err(error) => {
            let is_about_the_info = matches!(
                error,
                Error::Overflow { .. }
                    | Error::Shape { .. }
                    | Error::UnknownDType { .. }
                    | Error::InvalidOption { option: "offset", .. }
            );
            assert!(is_about_the_info, "{info:?}: {error:?}");
        }
    }
}
