//! Model weights as safetensors: one file, or several with an index.

use std::path::Path;

use ringmain::weights::Dtype;
use serde_json::{Map, Value, json};

use super::model::{ModelSizes, NewTensor};
use super::{RawBytes, write_data};
use crate::failure::Failure;
use crate::random::mix;
use crate::system::space::{Remedy, check_space, existing_folder, write_folder};
use crate::system::whole_file::{refuse_existing, write_whole};
use crate::text::progress::Progress;

/// The name of an index, by which loaders find it in a folder.
const INDEX_NAME: &str = "model.safetensors.index.json";
/// The limit of the format.
const HEADER_BYTES_MAX: usize = 100_000_000;
/// Headers are padded with spaces to a multiple of this, as the library does.
const HEADER_ALIGN: usize = 8;

/// Tensors with their numbers. The elements of a tensor depend on the seed and on its number, so that
/// they do not change if the model is divided into other files.
pub(crate) struct Model {
    tensors: Vec<(u64, NewTensor)>,
    seed: u64,
}

impl Model {
    pub(crate) fn new(sizes: &ModelSizes, seed: u64) -> Result<Self, Failure> {
        Ok(Self { tensors: (0..).zip(sizes.plan()?).collect(), seed })
    }

    /// Returns the bytes of all tensors.
    pub(crate) fn bytes(&self) -> Result<u64, Failure> {
        let add = |sum: u64, (_, tensor): &(u64, NewTensor)| sum.checked_add(tensor.bytes);
        self.tensors.iter().try_fold(0, add).ok_or_else(|| Failure::Usage {
            message: format!("{} tensors of that shape are too large", self.tensors.len()),
        })
    }

    pub(crate) fn write_file(&self, path: &Path, progress: &Progress) -> Result<(), Failure> {
        write_tensors(path, &self.tensors, self.seed, progress)
    }

    /// Writes several files. The index is the last one, so that every file it names exists.
    pub(crate) fn write_files(
        &self,
        dir: &Path,
        files: u64,
        progress: &Progress,
    ) -> Result<(), Failure> {
        if !(1..=self.tensors.len() as u64).contains(&files) {
            let message = format!(
                "{files} files for {} tensors: there must be from 1 file to as many files as tensors",
                self.tensors.len()
            );
            return Err(Failure::Usage { message });
        }
        let names: Vec<String> = (1..=files)
            .map(|number| format!("model-{number:05}-of-{files:05}.safetensors"))
            .collect();
        for name in names.iter().map(String::as_str).chain([INDEX_NAME]) {
            refuse_existing(&dir.join(name), "folder")?;
        }
        let total_bytes = self.bytes()?;
        // A disk that is too small leaves no folder behind.
        check_space(&existing_folder(dir), total_bytes, Remedy::Less("--bytes"))?;
        write_folder(dir, |written| {
            let mut weight_map = Map::new();
            for (part, name) in self.divide(files, total_bytes).into_iter().zip(names) {
                written.push(dir.join(&name));
                write_tensors(&dir.join(&name), part, self.seed, progress)?;
                let entry = |(_, tensor): &(u64, NewTensor)| (tensor.name.clone(), json!(name));
                weight_map.extend(part.iter().map(entry));
            }
            let index = json!({"metadata": {"total_size": total_bytes}, "weight_map": weight_map});
            write_whole(&dir.join(INDEX_NAME), &(serde_json::to_string_pretty(&index)? + "\n"))
        })
    }

    /// Divides the tensors into parts of about the same size, each with at least one tensor.
    fn divide(&self, parts: u64, total_bytes: u64) -> Vec<&[(u64, NewTensor)]> {
        let mut rest = self.tensors.as_slice();
        let (mut divided, mut before) = (Vec::new(), 0u64);
        for part in 1..=parts {
            let goal = u128::from(total_bytes) * u128::from(part) / u128::from(parts);
            let most = rest.len().saturating_sub((parts - part) as usize);
            let mut count = 0;
            while count < most && (count == 0 || part == parts || u128::from(before) < goal) {
                before += rest[count].1.bytes;
                count += 1;
            }
            let (taken, left) = rest.split_at(count);
            divided.push(taken);
            rest = left;
        }
        divided
    }
}

fn write_tensors(
    path: &Path,
    tensors: &[(u64, NewTensor)],
    seed: u64,
    progress: &Progress,
) -> Result<(), Failure> {
    let mut tensors: Vec<_> = tensors.iter().collect();
    // As the library writes them: the widest types first, so that elements are aligned.
    tensors.sort_by(|(_, a), (_, b)| b.dtype.cmp(&a.dtype).then_with(|| a.name.cmp(&b.name)));
    let header = header(&tensors)?;
    let data_bytes: u64 = tensors.iter().map(|(_, tensor)| tensor.bytes).sum();
    write_data(path, data_bytes.saturating_add(header.len() as u64), "--bytes", |file| {
        file.write_all(&(header.len() as u64).to_le_bytes())?;
        file.write_all(&header)?;
        for (number, tensor) in tensors {
            let mut random = RawBytes::new(mix(seed).wrapping_add(*number));
            random.write(file, tensor.bytes, progress, |bytes| to_finite(tensor.dtype, bytes))?;
        }
        Ok(())
    })
}

fn header(tensors: &[&(u64, NewTensor)]) -> Result<Vec<u8>, Failure> {
    let mut text = String::from(r#"{"__metadata__":{"format":"pt"}"#);
    let mut begin = 0;
    for (_, NewTensor { name, dtype, shape, bytes }) in tensors {
        let end = begin + bytes;
        let info =
            json!({"dtype": dtype.to_string(), "shape": shape, "data_offsets": [begin, end]});
        text += &format!(",{}:{info}", Value::String(name.clone()));
        begin = end;
    }
    text += "}";
    let mut header = text.into_bytes();
    header.resize(header.len().next_multiple_of(HEADER_ALIGN), b' ');
    if header.len() > HEADER_BYTES_MAX {
        let message = format!(
            "the header of {} tensors would have {} bytes, and {HEADER_BYTES_MAX} are allowed; \
             divide them with --files",
            tensors.len(),
            header.len()
        );
        return Err(Failure::Usage { message });
    }
    Ok(header)
}

/// Turns random bits into numbers from 0 to less than 2, so that there is no NaN, which is not equal
/// to itself. Integers stay as they are.
fn to_finite(dtype: Dtype, bytes: &mut [u8]) {
    let is_whole = matches!(dtype, Dtype::U8 | Dtype::I8 | Dtype::U16 | Dtype::I16)
        || matches!(dtype, Dtype::U32 | Dtype::I32 | Dtype::U64 | Dtype::I64);
    // Types of less than a byte have no NaN.
    if is_whole || dtype.bitsize() < 8 {
        return;
    }
    if dtype == Dtype::BOOL {
        bytes.iter_mut().for_each(|byte| *byte &= 1);
        return;
    }
    let number_bytes = if dtype == Dtype::C64 { 4 } else { dtype.bitsize() / 8 };
    // The sign and the highest bit of the exponent.
    bytes.iter_mut().skip(number_bytes - 1).step_by(number_bytes).for_each(|byte| *byte &= 0x3F);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ringmain::Engine;
    use ringmain::weights::Weights;

    use super::*;
    use crate::generate::Extent;

    const DTYPES: [Dtype; 5] = [Dtype::F16, Dtype::F4, Dtype::F8_E4M3, Dtype::I64, Dtype::BOOL];

    fn model(dtypes: &[Dtype], seed: u64) -> Model {
        let (extent, dtypes) = (Extent::Total(300_000), dtypes.to_vec());
        Model::new(&ModelSizes { tensors: 20, extent, dtypes }, seed).unwrap()
    }

    fn no_progress() -> Progress {
        Progress::bytes("writing", 0)
    }

    /// Returns the bytes of every tensor, by name.
    fn contents(path: &Path) -> BTreeMap<String, Vec<u8>> {
        let weights = Weights::open(&Engine::new().unwrap(), path).unwrap();
        let tensors = weights.read_all().unwrap();
        tensors.iter().map(|tensor| (tensor.name().to_owned(), tensor.bytes().to_vec())).collect()
    }

    #[test]
    fn the_elements_depend_on_the_seed_and_not_on_the_files() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("model.safetensors");
        let seven = model(&DTYPES, 7);
        seven.write_file(&path, &no_progress()).unwrap();
        let one = contents(&path);
        assert_eq!(one.len(), 20);
        for files in [1, 3, 20] {
            let folder = dir.path().join(format!("model-{files}"));
            seven.write_files(&folder, files, &no_progress()).unwrap();
            assert!(contents(&folder) == one, "{files} files");
        }
        let other = dir.path().join("other.safetensors");
        model(&DTYPES, 8).write_file(&other, &no_progress()).unwrap();
        assert!(contents(&other) != one);
        for files in [0, 21] {
            assert!(seven.write_files(dir.path(), files, &no_progress()).is_err(), "{files} files");
        }
    }

    #[test]
    fn numbers_are_finite() {
        let dir = tempfile::tempdir().unwrap();
        for dtype in [Dtype::F16, Dtype::F32, Dtype::F64, Dtype::BF16] {
            let path = dir.path().join(format!("{dtype}.safetensors"));
            model(&[dtype], 1).write_file(&path, &no_progress()).unwrap();
            let weights = Weights::open(&Engine::new().unwrap(), &path).unwrap();
            let view = weights.view("model.norm.weight").unwrap();
            let values: Vec<f64> = match dtype {
                Dtype::F32 => view.read_vec::<f32>().unwrap().into_iter().map(f64::from).collect(),
                Dtype::F64 => view.read_vec::<f64>().unwrap(),
                _ => continue,
            };
            assert!(values.iter().all(|value| (0.0..2.0).contains(value)), "{dtype}: {values:?}");
        }
        let mut bytes = [0xFF; 8];
        to_finite(Dtype::F16, &mut bytes);
        assert_eq!(bytes, [0xFF, 0x3F, 0xFF, 0x3F, 0xFF, 0x3F, 0xFF, 0x3F]);
    }

    #[test]
    fn parts_have_about_the_same_bytes() {
        let sizes =
            ModelSizes { tensors: 200, extent: Extent::Total(1 << 30), dtypes: vec![Dtype::BF16] };
        let model = Model::new(&sizes, 1).unwrap();
        for part in model.divide(4, model.bytes().unwrap()) {
            let bytes: u64 = part.iter().map(|(_, tensor)| tensor.bytes).sum();
            assert!((200 << 20..320 << 20).contains(&bytes), "{bytes}");
        }
    }
}
