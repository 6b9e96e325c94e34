//! The tensors of a model: those of a transformer of a given size, or any number of one shape.

use ringmain::weights::Dtype;

use crate::failure::Failure;

/// The parameters of a model.
#[derive(Clone, Debug)]
pub(crate) struct ModelSizes {
    pub(crate) tensors: u64,
    pub(crate) extent: Extent,
    /// The element types, taken in turn.
    pub(crate) dtypes: Vec<Dtype>,
}

/// The size of the tensors.
#[derive(Clone, Debug)]
pub(crate) enum Extent {
    /// A transformer of this many bytes, rounded to a row of its embedding.
    Total(u64),
    /// All tensors have this shape.
    Shape(Vec<u64>),
}

/// A tensor to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NewTensor {
    pub(super) name: String,
    pub(super) dtype: Dtype,
    pub(super) shape: Vec<u64>,
    pub(super) bytes: u64,
}

/// More tensors would not fit into a header of 100 MB, the limit of the format.
const TENSORS_MAX: u64 = 500_000;
/// Widths are multiples of this, so that elements of 4 and 6 bits fill whole bytes too.
const WIDTH_STEP: u64 = 8;
/// A wider model would not fit on a disk.
const WIDTH_MAX: u64 = 1 << 24;
/// The smallest number of rows of the embedding for each column.
const VOCABULARY_MIN: u64 = 16;

/// The tensors of a layer as Llama names them, with their rows in eighths of the model's width; `None`
/// for a vector.
const LAYER: [(&str, Option<u64>); 9] = [
    ("self_attn.q_proj", Some(8)),
    ("self_attn.k_proj", Some(2)),
    ("self_attn.v_proj", Some(2)),
    ("self_attn.o_proj", Some(8)),
    ("mlp.gate_proj", Some(22)),
    ("mlp.up_proj", Some(22)),
    ("mlp.down_proj", Some(22)),
    ("input_layernorm", None),
    ("post_attention_layernorm", None),
];

impl ModelSizes {
    /// Returns the tensors, in the order of the model.
    pub(super) fn plan(&self) -> Result<Vec<NewTensor>, Failure> {
        if !(1..=TENSORS_MAX).contains(&self.tensors) {
            return Err(usage(format!(
                "{} tensors: the number must be from 1 to {TENSORS_MAX}",
                self.tensors
            )));
        }
        match &self.extent {
            Extent::Total(bytes) => self.transformer(*bytes),
            Extent::Shape(shape) => {
                let digits = (self.tensors - 1).to_string().len();
                let name = |number| format!("tensor_{number:0digits$}");
                (0..self.tensors).map(|at| self.tensor(at, name(at), shape.clone())).collect()
            }
        }
    }

    fn transformer(&self, bytes: u64) -> Result<Vec<NewTensor>, Failure> {
        let fits = |width: u64| self.transformer_bits(width, width * VOCABULARY_MIN);
        let fits = |step: u64| fits(step * WIDTH_STEP) <= u128::from(bytes) * 8;
        if !fits(1) {
            let least = self.transformer_bits(WIDTH_STEP, WIDTH_STEP * VOCABULARY_MIN).div_ceil(8);
            return Err(usage(format!(
                "a transformer of {} tensors has at least {least} bytes; ask for more --bytes or \
                 fewer --tensors",
                self.tensors
            )));
        }
        let (mut low, mut high) = (1, WIDTH_MAX / WIDTH_STEP);
        while low + 1 < high {
            let middle = u64::midpoint(low, high);
            if fits(middle) { low = middle } else { high = middle }
        }
        let width = low * WIDTH_STEP;
        let row_bits = u128::from(width) * self.dtype(0).bitsize() as u128;
        let left_bits = u128::from(bytes) * 8 - self.transformer_bits(width, 0);
        let vocabulary = u64::try_from(left_bits / row_bits).unwrap_or(u64::MAX);
        (0..self.tensors)
            .map(|at| {
                let (name, shape) = self.part(at, width, vocabulary);
                self.tensor(at, name, shape)
            })
            .collect()
    }

    /// Returns the bits of all tensors.
    fn transformer_bits(&self, width: u64, vocabulary: u64) -> u128 {
        let bits = |at: u64| {
            let (rows, columns) = self.part_axes(at, width, vocabulary);
            u128::from(rows.unwrap_or(1)) * u128::from(columns) * self.dtype(at).bitsize() as u128
        };
        (0..self.tensors).map(bits).sum()
    }

    /// Returns an embedding, layers of nine tensors (the last may have fewer), and a norm.
    fn part_axes(&self, at: u64, width: u64, vocabulary: u64) -> (Option<u64>, u64) {
        if at == 0 {
            return (Some(vocabulary), width);
        }
        if at + 1 == self.tensors {
            return (None, width);
        }
        let (_, eighths) = LAYER[((at - 1) % LAYER.len() as u64) as usize];
        (eighths.map(|eighths| width / 8 * eighths), width)
    }

    fn part(&self, at: u64, width: u64, vocabulary: u64) -> (String, Vec<u64>) {
        let (rows, columns) = self.part_axes(at, width, vocabulary);
        let shape: Vec<u64> = rows.into_iter().chain([columns]).collect();
        if at == 0 {
            return ("model.embed_tokens.weight".into(), shape);
        }
        if at + 1 == self.tensors {
            return ("model.norm.weight".into(), shape);
        }
        let (layer, kind) = ((at - 1) / LAYER.len() as u64, (at - 1) % LAYER.len() as u64);
        let (kind, _) = LAYER[kind as usize];
        (format!("model.layers.{layer}.{kind}.weight"), shape)
    }

    fn dtype(&self, at: u64) -> Dtype {
        let turn = at % self.dtypes.len().max(1) as u64;
        self.dtypes.get(turn as usize).copied().unwrap_or(Dtype::BF16)
    }

    fn tensor(&self, at: u64, name: String, shape: Vec<u64>) -> Result<NewTensor, Failure> {
        let dtype = self.dtype(at);
        let elements = shape.iter().try_fold(1u64, |product, axis| product.checked_mul(*axis));
        let bits = elements.and_then(|count| count.checked_mul(dtype.bitsize() as u64));
        let Some(bits) = bits else {
            return Err(usage(format!("a tensor of shape {shape:?} is too large")));
        };
        if !bits.is_multiple_of(8) {
            return Err(usage(format!(
                "shape {shape:?} of {dtype} is not a whole number of bytes"
            )));
        }
        Ok(NewTensor { name, dtype, shape, bytes: bits / 8 })
    }
}

fn usage(message: String) -> Failure {
    Failure::Usage { message }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(tensors: u64, bytes: u64, dtypes: &[Dtype]) -> Vec<NewTensor> {
        let sizes = ModelSizes { tensors, extent: Extent::Total(bytes), dtypes: dtypes.to_vec() };
        sizes.plan().unwrap()
    }

    #[test]
    fn a_transformer_has_the_requested_size_to_the_row() {
        let all = [Dtype::BF16, Dtype::F4, Dtype::F32, Dtype::F6_E2M3, Dtype::U8];
        for dtypes in [&all[..1], &all[1..2], &all[3..4], &all] {
            for (tensors, bytes) in [(200, 512 << 20), (1, 1 << 20), (2, 4096), (37, 3_000_000)] {
                let plan = plan(tensors, bytes, dtypes);
                assert_eq!(plan.len() as u64, tensors);
                let total: u64 = plan.iter().map(|tensor| tensor.bytes).sum();
                let row = plan[0].bytes / plan[0].shape[0];
                assert!(total <= bytes && bytes - total < row, "{total} of {bytes}, row {row}");
            }
        }
    }

    #[test]
    fn two_hundred_tensors_are_twenty_two_layers() {
        let plan = plan(200, 1 << 30, &[Dtype::BF16]);
        assert_eq!(plan[198].name, "model.layers.21.post_attention_layernorm.weight");
        assert_eq!(plan[199].name, "model.norm.weight");
        assert_eq!(plan[1].shape, [plan[0].shape[1]; 2]);
        let names: std::collections::HashSet<_> = plan.iter().map(|tensor| &tensor.name).collect();
        assert_eq!(names.len(), 200);
    }

    #[test]
    fn impossible_models_are_refused() {
        let refused = |tensors, extent, dtype| {
            let sizes = ModelSizes { tensors, extent, dtypes: vec![dtype] };
            sizes.plan().unwrap_err().to_string()
        };
        assert!(refused(0, Extent::Total(1 << 20), Dtype::F32).contains("from 1 to"));
        assert!(refused(200, Extent::Total(1000), Dtype::F32).contains("at least"));
        assert!(refused(1, Extent::Shape(vec![3]), Dtype::F4).contains("whole number of bytes"));
        assert!(refused(1, Extent::Shape(vec![u64::MAX, 2]), Dtype::F32).contains("too large"));
    }
}
