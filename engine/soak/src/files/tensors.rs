//! Safetensors files.

use std::ops::Range;

use crate::dice::Dice;
use crate::model::Contents;

const TENSORS: u64 = 24;
const TENSOR_BYTES_MAX: u64 = 100_000;

/// Where a tensor is in its file.
#[derive(Clone, Debug)]
pub(crate) struct TensorPlace {
    pub(crate) name: String,
    pub(crate) range: Range<u64>,
}

/// The header, and the places of the tensors.
pub(super) fn header() -> (Vec<u8>, Vec<TensorPlace>) {
    let mut dice = Dice::new(&[TENSORS]);
    let (mut entries, mut places, mut end) = (Vec::new(), Vec::new(), 0);
    for number in 0..TENSORS {
        let (begin, name) = (end, format!("layer.{number}.weight"));
        end += dice.between(1, TENSOR_BYTES_MAX);
        entries.push(format!(
            r#""{name}":{{"dtype":"U8","shape":[{}],"data_offsets":[{begin},{end}]}}"#,
            end - begin
        ));
        places.push(TensorPlace { name, range: begin..end });
    }
    let json = format!("{{{}}}", entries.join(","));
    let header = [&(json.len() as u64).to_le_bytes(), json.as_bytes()].concat();
    for place in &mut places {
        let data_at = header.len() as u64;
        place.range = place.range.start + data_at..place.range.end + data_at;
    }
    (header, places)
}

pub(super) fn encode(header: &[u8], places: &[TensorPlace], contents: Contents) -> Vec<u8> {
    let end = places.last().map_or(header.len() as u64, |place| place.range.end);
    let mut bytes = vec![0; end as usize];
    let (head, data) = bytes.split_at_mut(header.len());
    head.copy_from_slice(header);
    contents.fill(header.len() as u64, data);
    bytes
}
