//! `Beton`: delivers the samples of a `.beton` dataset as arrays, one by one, in batches and by epoch.

use std::collections::HashSet;
use std::path::Path;

use numpy::PyArray1;
use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use ringmain::beton::{Batch, BetonReader, Field, FieldKind, Member, ReaderOptions};

use crate::arguments;
use crate::array;
use crate::beton_batch::{self, BatchArrays};
use crate::beton_custom::CustomFields;
use crate::beton_images::{ImageArguments, Images, SampleForm};
use crate::dtype;
use crate::engine::PyEngine;
use crate::error::{Failure, Result};
use crate::gil::detached;
use crate::path::{FilePath, absolute};
use crate::shared_engines::EngineArgument;

/// A dataset in FFCV's `.beton` format. `beton[id]` reads one sample and returns a dict of its fields by
/// name; a negative `id` counts from the end. `read_batch` reads several samples as one batch of reads.
/// `epoch` delivers all samples while a thread reads ahead.
///
/// path: the file, or the URL of an object in a store.
/// engine: an Engine, or the name of a backend. The default is the engine that all readers share.
/// images: "decoded" delivers arrays of (height, width, 3); "stored" delivers JPEGs as their bytes.
/// resize: the (height, width) that all images are resampled to. The images of a batch are then one array
///     of (batch, height, width, 3). The filter is that of Pillow's resize with BILINEAR.
/// center_crop: with resize, resamples only a square at the centre of the image. Its side is this fraction,
///     above 0 and at most 1, of the image's shorter side. By default the whole image is resampled.
/// random_crop: with resize, resamples a random part of each image: (smallest, largest) area as a fraction of
///     the image. It depends on crop_seed, the number of the epoch and the id of the sample alone.
/// crop_ratio: with random_crop, the (smallest, largest) width divided by the height; (3/4, 4/3) by default.
/// crop_seed: with random_crop, the seed; 0 by default.
/// dtype: with resize, the type of the images: "uint8", "float16" or "float32", or NumPy's dtypes of them.
/// layout: with resize, "nhwc" for (batch, height, width, 3) or "nchw" for (batch, 3, height, width).
/// mean, std: with a dtype of floats, delivers (level - mean) / std for red, green and blue. Both count levels
///     from 0 to 255, as FFCV's NormalizeImage: multiply the values of torchvision by 255.
/// transform: with resize, a function that gets each array of (batch, ...) images and the ids of their samples,
///     and changes the images in place. A note on its exception names the samples.
/// decode_threads: the number of threads that decode the images of a batch; by default the number of
///     processors, or 1 in a worker of a DataLoader. It changes no byte.
/// pixels_max: JPEGs with more pixels are errors, before memory is allocated for them; 178,956,970 by default, as
///     in Pillow.
/// index_limit: the most memory that the metadata and the allocation table may take, in bytes; 4 GiB by
///     default.
/// fields: a NumPy dtype for each field whose type FFCV does not define, or the number of its bytes. The
///     dtype describes the field's metadata: it is the metadata_type of the class that wrote the field. If
///     the dtype has a "ptr" (and a "size"), the value is a dict of "metadata" and "data", the bytes that
///     "ptr" points to; otherwise the value is the metadata. With a dtype of the wrong size, fields would
///     be read from wrong places; this raises an error if the layout of the file shows it.
///
/// The memory limit applies neither to single samples nor to the batches of `read_batch`: once the engine's
/// pool is exhausted, they get memory outside of it. The batches of an epoch always use the pool and count
/// against its limit; only their decoded images may get memory outside of it.
#[pyclass(frozen, weakref, sequence, module = "ringmain", name = "Beton")]
pub(crate) struct PyBeton {
    pub(crate) reader: BetonReader,
    pub(crate) engine: Py<PyEngine>,
    pub(crate) form: SampleForm,
    /// This argument and the next are kept only for pickles.
    image_arguments: ImageArguments,
    index_limit: Option<u64>,
}

#[pymethods]
impl PyBeton {
    #[new]
    #[pyo3(signature = (path, *, engine=None, images="decoded", resize=None, center_crop=None,
                        random_crop=None, crop_ratio=None, crop_seed=None, dtype=None, layout=None,
                        mean=None, std=None, transform=None, decode_threads=None, pixels_max=None,
                        index_limit=None, fields=None))]
    #[allow(clippy::too_many_arguments)] // in Python the arguments have names
    fn new(
        py: Python<'_>,
        path: FilePath,
        engine: Option<EngineArgument<'_>>,
        #[pyo3(from_py_with = arguments::images)] images: &str,
        #[pyo3(from_py_with = arguments::resize)] resize: Option<(u16, u16)>,
        #[pyo3(from_py_with = arguments::center_crop)] center_crop: Option<f64>,
        #[pyo3(from_py_with = arguments::random_crop)] random_crop: Option<(f64, f64)>,
        #[pyo3(from_py_with = arguments::crop_ratio)] crop_ratio: Option<(f64, f64)>,
        #[pyo3(from_py_with = arguments::crop_seed)] crop_seed: Option<u64>,
        #[pyo3(from_py_with = arguments::pixel_dtype)] dtype: Option<String>,
        #[pyo3(from_py_with = arguments::layout)] layout: Option<String>,
        #[pyo3(from_py_with = arguments::mean)] mean: Option<[f32; 3]>,
        #[pyo3(from_py_with = arguments::std)] std: Option<[f32; 3]>,
        transform: Option<Py<PyAny>>,
        #[pyo3(from_py_with = arguments::decode_threads)] decode_threads: Option<usize>,
        #[pyo3(from_py_with = arguments::pixels_max)] pixels_max: Option<u64>,
        #[pyo3(from_py_with = arguments::index_limit)] index_limit: Option<u64>,
        #[pyo3(from_py_with = arguments::optional_fields)] fields: Option<&Bound<'_, PyDict>>,
    ) -> Result<Self> {
        let images = images.to_owned();
        let image_arguments = ImageArguments {
            images,
            resize,
            center_crop,
            random_crop,
            crop_ratio,
            crop_seed,
            dtype,
            layout,
            mean,
            std,
            transform,
            decode_threads,
            pixels_max,
        };
        let form = SampleForm {
            images: image_arguments.images()?,
            custom: CustomFields::parse(fields)?,
            decoder: image_arguments.decoder()?,
            has_decode_threads: image_arguments.decode_threads.is_some(),
            transform: image_arguments.transform.as_ref().map(|transform| transform.clone_ref(py)),
        };
        let engine = PyEngine::or_default(py, engine)?;
        let mut options = ReaderOptions::new();
        if let Some(bytes) = index_limit {
            options = options.index_limit_bytes(bytes);
        }
        for field in form.custom.iter() {
            options = options.handle_name(&field.name, field.layout);
        }
        let path = absolute(&path.0)?;
        let reader = match detached(py, || options.open(&engine.get().engine, &path)) {
            Ok(reader) => reader,
            Err(failure) => {
                // A misspelt name in `fields` leaves a field without a dtype. An error about the name is
                // more helpful than an error about that field.
                let described = detached(py, || BetonReader::describe(&engine.get().engine, &path));
                if let Ok((_, fields)) = described {
                    check_names(&form.custom, &fields, &path)?;
                }
                return Err(failure);
            }
        };
        let fields = reader.fields();
        let mut known = HashSet::new();
        if let Some(twice) = fields.iter().find(|field| !known.insert(field.name())) {
            let (path, name) = (path.display(), twice.name());
            return Err(Failure::value(format!(
                "{path}: two fields have the name {name:?}, but a sample is a dict and needs a \
                 different name for each; write the file with other names"
            )));
        }
        check_names(&form.custom, fields, &path)?;
        Ok(Self { reader, engine, form, image_arguments, index_limit })
    }

    fn __len__(&self) -> usize {
        usize::try_from(self.reader.len()).unwrap_or(usize::MAX)
    }

    /// The fields by name. Each is a dict with its `kind`, for arrays also with `dtype` and `shape`, and for
    /// custom fields with the `dtype` of the metadata.
    #[getter]
    fn fields<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        let fields = PyDict::new(py);
        for field in self.reader.fields() {
            fields.set_item(field.name(), self.describe(py, field)?)?;
        }
        Ok(fields)
    }

    /// The file.
    #[getter]
    fn path(&self) -> FilePath {
        FilePath(self.reader.path().to_owned())
    }

    /// The engine that reads.
    #[getter]
    fn engine(&self, py: Python<'_>) -> Py<PyEngine> {
        self.engine.clone_ref(py)
    }

    /// Reads a sample and returns a dict of its values by field name.
    fn __getitem__<'py>(
        &self,
        py: Python<'py>,
        id: &Bound<'py, PyAny>,
    ) -> Result<Bound<'py, PyDict>> {
        let id = self.sample_id(id)?;
        let fields = self.sample(py, id, 0)?;
        let ids = SampleForm::one_id(py, id);
        self.form.transform(&fields, &self.image_fields(), &ids, true)?;
        Ok(fields)
    }

    /// Returns an iterator over all samples.
    fn __iter__<'py>(this: &Bound<'py, Self>) -> Result<Bound<'py, PyAny>> {
        let (py, len) = (this.py(), this.get().__len__());
        let ids = py.import("builtins")?.call_method1("range", (len,))?;
        let get = this.getattr("__getitem__")?;
        Ok(py.import("builtins")?.call_method1("map", (get, ids))?)
    }

    /// Reads several samples as one batch of reads and returns a dict by field name. A field of numbers
    /// or arrays becomes one array whose first axis counts the samples. A field of bytes or images
    /// becomes a list of arrays, a JSON field a list of parsed values. With `resize`, a field of images
    /// becomes one array.
    ///
    /// ids: the numbers of the samples; negative numbers count from the end.
    /// epoch: the number of the epoch, on which random crops depend. Those of `beton[id]` are those of epoch 0.
    #[pyo3(signature = (ids, *, epoch=0))]
    fn read_batch<'py>(
        &self,
        py: Python<'py>,
        ids: &Bound<'py, PyAny>,
        #[pyo3(from_py_with = arguments::epoch)] epoch: u64,
    ) -> Result<Bound<'py, PyDict>> {
        let ids = ids.try_iter()?.map(|id| self.sample_id(&id?)).collect::<Result<Vec<_>>>()?;
        let arrays = self.batch_arrays(py, self.read(py, &ids)?, epoch)?;
        self.transform(&arrays)?;
        Ok(arrays.fields)
    }

    /// Returns how many bytes the values of each sample take as `read_batch` delivers them: images
    /// decoded or resized, unless they are delivered as stored. It reads nothing from the file. JSON counts
    /// as its text, and a value of a custom field as its metadata and data.
    ///
    /// ids: the numbers of the samples, as for `read_batch`; by default all samples.
    #[pyo3(signature = (ids=None))]
    fn sample_bytes<'py>(
        &self,
        py: Python<'py>,
        ids: Option<&Bound<'py, PyAny>>,
    ) -> Result<Bound<'py, PyArray1<u64>>> {
        let ids = match ids {
            Some(ids) => {
                ids.try_iter()?.map(|id| self.sample_id(&id?)).collect::<Result<Vec<_>>>()?
            }
            None => (0..self.reader.len()).collect(),
        };
        let sizes = detached(py, || {
            ids.into_iter().map(|id| self.delivered_bytes(id)).collect::<ringmain::Result<Vec<_>>>()
        })?;
        Ok(PyArray1::from_vec(py, sizes))
    }

    /// Returns the path and the options. A pickle contains nothing else.
    fn __getnewargs_ex__<'py>(&self, py: Python<'py>) -> Result<((FilePath,), Bound<'py, PyDict>)> {
        let kwargs = PyDict::new(py);
        kwargs.set_item("engine", PyEngine::for_pickle(py, &self.engine))?;
        self.image_arguments.put(&kwargs)?;
        kwargs.set_item("fields", self.form.custom.to_dict(py)?)?;
        kwargs.set_item("index_limit", self.index_limit)?;
        Ok(((self.path(),), kwargs))
    }

    fn __repr__(&self) -> String {
        let names: Vec<_> = self.reader.fields().iter().map(Field::name).collect();
        let (path, len) = (self.reader.path().display(), self.reader.len());
        format!("Beton({path}, {len} samples of {})", names.join(", "))
    }
}

/// Returns an error if `fields` names a field that the file does not have.
fn check_names(custom: &CustomFields, fields: &[Field], path: &Path) -> Result<()> {
    let known: HashSet<_> = fields.iter().map(Field::name).collect();
    let Some(unknown) = custom.iter().find(|field| !known.contains(&*field.name)) else {
        return Ok(());
    };
    let names: Vec<_> = fields.iter().map(Field::name).collect();
    Err(Failure::value(format!(
        "fields has the name '{}', but the fields of {} are {}",
        unknown.name,
        path.display(),
        names.join(", ")
    )))
}

impl PyBeton {
    /// Reads samples into memory of the pool or, if the pool is exhausted, outside of it: the engine
    /// does not limit how much a program keeps.
    pub(crate) fn read(&self, py: Python<'_>, ids: &[u64]) -> Result<Batch> {
        let engine = &self.engine.get().engine;
        detached(py, || self.reader.read_batch_in(ids, |bytes| array::take(engine, bytes)))
    }

    /// Returns the size of a sample's values in the form in which they are delivered.
    fn delivered_bytes(&self, id: u64) -> ringmain::Result<u64> {
        (0..self.reader.fields().len()).try_fold(0u64, |sum, field| {
            let stored = self.reader.value_bytes(id, field)?;
            let delivered = match (self.reader.member(id, field)?, &self.form.images) {
                (Member::Image { width, height, .. }, Images::Decoded) => {
                    u64::from(width) * u64::from(height) * 3
                }
                (Member::Image { .. }, Images::Resized(form)) => form.image_bytes() as u64,
                (Member::Custom(metadata), _) => stored.saturating_add(metadata.len() as u64),
                _ => stored,
            };
            Ok(sum.saturating_add(delivered))
        })
    }

    /// Reads one sample and returns its fields. The transform is not called.
    pub(crate) fn sample<'py>(
        &self,
        py: Python<'py>,
        id: u64,
        epoch: u64,
    ) -> Result<Bound<'py, PyDict>> {
        let batch = self.read(py, &[id])?;
        beton_batch::sample(py, batch, &self.form, &self.engine.get().engine, epoch)
    }

    /// Calls the transform with the images of a batch.
    pub(crate) fn transform(&self, arrays: &BatchArrays<'_>) -> Result<()> {
        self.form.transform(&arrays.fields, &self.image_fields(), arrays.ids.as_any(), false)
    }

    /// Returns the names of the fields of images.
    fn image_fields(&self) -> Vec<&str> {
        let fields = self.reader.fields().iter();
        fields.filter(|field| *field.kind() == FieldKind::RgbImage).map(Field::name).collect()
    }

    /// Returns the fields of a batch and the ids of its samples. The transform is not called.
    pub(crate) fn batch_arrays<'py>(
        &self,
        py: Python<'py>,
        batch: Batch,
        epoch: u64,
    ) -> Result<BatchArrays<'py>> {
        beton_batch::batch(py, batch, &self.form, &self.engine.get().engine, epoch)
    }

    /// Returns a field as a dict. `BetonWriter` accepts the dict too.
    fn describe<'py>(&self, py: Python<'py>, field: &Field) -> Result<Bound<'py, PyDict>> {
        let described = PyDict::new(py);
        let kind = match field.kind() {
            FieldKind::Float => "float",
            FieldKind::Int => "int",
            FieldKind::RgbImage => "image",
            FieldKind::Bytes => "bytes",
            FieldKind::NdArray(_) => "array",
            FieldKind::Json => "json",
            FieldKind::TorchTensor(_) => "tensor",
            _ => "custom",
        };
        described.set_item("kind", kind)?;
        if let Some(spec) = field.kind().array() {
            described.set_item("dtype", dtype::to_numpy(py, spec.dtype())?)?;
            described.set_item("shape", PyTuple::new(py, spec.shape())?)?;
        }
        if let Some(custom) = self.form.custom.find(field.name()) {
            described.set_item("dtype", &custom.descr)?;
        }
        Ok(described)
    }

    /// Returns the number of a sample. A negative `id` counts from the end.
    fn sample_id(&self, id: &Bound<'_, PyAny>) -> Result<u64> {
        let len = self.reader.len();
        let found = match id.extract::<i64>() {
            Ok(id) if id < 0 => len.checked_sub(id.unsigned_abs()),
            Ok(id) => Some(id as u64).filter(|id| *id < len),
            Err(error) if error.is_instance_of::<PyOverflowError>(id.py()) => None,
            Err(error) => return Err(error.into()),
        };
        let path = self.reader.path().display();
        found.ok_or_else(|| {
            Failure::index(format!("{path}: cannot get sample {id}: the dataset has {len} samples"))
        })
    }
}
