//! The images of samples: the arguments that choose their form, decoding by threads, and the transform.

use std::num::NonZeroUsize;

use numpy::PyArray1;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use ringmain::beton::{
    Batch, Crop, FieldKind, ImageDecoder, ImageForm, ImageMode, PixelLayout, PixelType, Value,
};
use ringmain::{Buffer, Engine};

use crate::arguments::choose;
use crate::array;
use crate::beton_custom::CustomFields;
use crate::error::{Failure, Result};

/// The proportions of random crops, as in torchvision and FFCV.
const CROP_RATIO: (f64, f64) = (3.0 / 4.0, 4.0 / 3.0);

/// The form in which samples are delivered.
#[derive(Debug)]
pub(crate) struct SampleForm {
    pub(crate) images: Images,
    pub(crate) custom: CustomFields,
    pub(crate) decoder: ImageDecoder,
    /// True if the program chose the number of threads that decode.
    pub(crate) has_decode_threads: bool,
    /// A function that changes the images of a batch in place.
    pub(crate) transform: Option<Py<PyAny>>,
}

impl SampleForm {
    /// Returns the decoder for this process. The workers of a DataLoader already share the processors, so each decodes
    /// with one thread, unless the program chose another number.
    pub(crate) fn decoder_here(&self, py: Python<'_>) -> Result<ImageDecoder> {
        let decoder = self.decoder.clone();
        let is_shared = !self.has_decode_threads && is_torch_worker(py)?;
        Ok(if is_shared { decoder.threads(NonZeroUsize::MIN) } else { decoder })
    }
}

/// Returns whether this process is a worker of a DataLoader of torch. Torch is not imported for this.
fn is_torch_worker(py: Python<'_>) -> Result<bool> {
    let modules = py.import("sys")?.getattr("modules")?;
    let data = modules.call_method1("get", ("torch.utils.data",))?;
    // While torch is imported, the function may be missing.
    match data.getattr_opt("get_worker_info")? {
        Some(info) => Ok(!info.call0()?.is_none()),
        None => Ok(false),
    }
}

/// The form in which images are delivered.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Images {
    /// Arrays of (height, width, 3). JPEGs are decoded.
    Decoded,
    /// Arrays of one size.
    Resized(ImageForm),
    /// JPEGs are delivered as their bytes.
    Stored,
}

/// The words for the argument `images`.
const IMAGES: [(&str, Images); 2] = [("decoded", Images::Decoded), ("stored", Images::Stored)];

/// The words for the argument `dtype`: NumPy's names and codes.
const DTYPES: [(&str, PixelType); 3] =
    [("uint8", PixelType::U8), ("float16", PixelType::F16), ("float32", PixelType::F32)];

/// The words for the argument `layout`.
const LAYOUTS: [(&str, PixelLayout); 2] =
    [("nhwc", PixelLayout::Nhwc), ("nchw", PixelLayout::Nchw)];

/// The arguments of `Beton` about images. A pickle contains them.
#[derive(Debug)]
pub(crate) struct ImageArguments {
    pub(crate) images: String,
    pub(crate) resize: Option<(u16, u16)>,
    pub(crate) center_crop: Option<f64>,
    pub(crate) random_crop: Option<(f64, f64)>,
    pub(crate) crop_ratio: Option<(f64, f64)>,
    pub(crate) crop_seed: Option<u64>,
    pub(crate) dtype: Option<String>,
    pub(crate) layout: Option<String>,
    pub(crate) mean: Option<[f32; 3]>,
    pub(crate) std: Option<[f32; 3]>,
    pub(crate) transform: Option<Py<PyAny>>,
    pub(crate) decode_threads: Option<usize>,
    pub(crate) pixels_max: Option<u64>,
}

impl ImageArguments {
    /// Returns the form of images, or an error if the arguments contradict each other.
    pub(crate) fn images(&self) -> Result<Images> {
        let [decoded, stored] = &IMAGES;
        let choices = [(decoded.0, false), (stored.0, true)];
        let is_stored = choose("images", &self.images, &choices)?;
        let Some((height, width)) = self.resize else {
            return match self.needs_resize() {
                Some(name) => Err(Failure::value(format!("{name} needs resize=(height, width)"))),
                None if is_stored => Ok(Images::Stored),
                None => Ok(Images::Decoded),
            };
        };
        if is_stored {
            return Err(Failure::value("resize needs images=\"decoded\""));
        }
        let dtype =
            self.dtype.as_ref().map_or(Ok(PixelType::U8), |name| choose("dtype", name, &DTYPES))?;
        let layout = self
            .layout
            .as_ref()
            .map_or(Ok(PixelLayout::Nhwc), |name| choose("layout", name, &LAYOUTS))?;
        let form = ImageForm::new(height, width)?.crop(self.crop()?).pixels(dtype, layout);
        let form = match (self.mean, self.std) {
            (None, None) => form,
            (mean, std) => form.normalized(mean.unwrap_or([0.0; 3]), std.unwrap_or([1.0; 3]))?,
        };
        Ok(Images::Resized(form))
    }

    /// Returns the name of an argument that only has an effect with `resize`.
    fn needs_resize(&self) -> Option<&'static str> {
        let given = [
            ("center_crop", self.center_crop.is_some()),
            ("random_crop", self.random_crop.is_some()),
            ("dtype", self.dtype.is_some()),
            ("layout", self.layout.is_some()),
            ("mean", self.mean.is_some()),
            ("std", self.std.is_some()),
            ("transform", self.transform.is_some()),
        ];
        given.into_iter().find_map(|(name, is_given)| is_given.then_some(name))
    }

    fn crop(&self) -> Result<Crop> {
        match (self.center_crop, self.random_crop) {
            (Some(_), Some(_)) => Err(Failure::value(
                "center_crop and random_crop exclude each other: pass one of them",
            )),
            (None, Some(scale)) => {
                let (ratio, seed) =
                    (self.crop_ratio.unwrap_or(CROP_RATIO), self.crop_seed.unwrap_or(0));
                Ok(Crop::random(scale, ratio, seed)?)
            }
            _ if self.crop_ratio.is_some() => Err(Failure::value("crop_ratio needs random_crop")),
            _ if self.crop_seed.is_some() => Err(Failure::value("crop_seed needs random_crop")),
            (Some(ratio), None) => Ok(Crop::center(ratio)?),
            (None, None) => Ok(Crop::whole()),
        }
    }

    /// Returns the decoder of the images.
    pub(crate) fn decoder(&self) -> Result<ImageDecoder> {
        let mut decoder = ImageDecoder::new();
        if let Some(threads) = self.decode_threads {
            let Some(threads) = NonZeroUsize::new(threads) else {
                return Err(Failure::value("decode_threads cannot be 0: it must be at least 1"));
            };
            decoder = decoder.threads(threads);
        }
        Ok(self.pixels_max.map_or(decoder.clone(), |pixels| decoder.pixels_max(pixels)))
    }

    /// Adds the arguments to those of a pickle.
    pub(crate) fn put(&self, kwargs: &Bound<'_, PyDict>) -> Result<()> {
        kwargs.set_item("images", &self.images)?;
        kwargs.set_item("resize", self.resize)?;
        kwargs.set_item("center_crop", self.center_crop)?;
        kwargs.set_item("random_crop", self.random_crop)?;
        kwargs.set_item("crop_ratio", self.crop_ratio)?;
        kwargs.set_item("crop_seed", self.crop_seed)?;
        kwargs.set_item("dtype", &self.dtype)?;
        kwargs.set_item("layout", &self.layout)?;
        kwargs.set_item("mean", self.mean)?;
        kwargs.set_item("std", self.std)?;
        kwargs.set_item("transform", self.transform.as_ref())?;
        kwargs.set_item("decode_threads", self.decode_threads)?;
        kwargs.set_item("pixels_max", self.pixels_max)?;
        Ok(())
    }
}

/// Returns NumPy's code of a type.
pub(crate) fn pixel_code(dtype: PixelType) -> &'static str {
    match dtype {
        PixelType::F16 => "f2",
        PixelType::F32 => "f4",
        _ => "u1",
    }
}

/// The images of a field that are not delivered as they are stored.
pub(crate) enum Decoded {
    /// For each sample, the decoded image if it is a JPEG. Empty if nothing in the field is decoded.
    Each(Vec<Option<Buffer>>),
    /// All images in one form; `None` once they are planned.
    Resized(Option<Buffer>),
}

/// Decodes the images of all fields, if the form requires it. Stops between two images once `go_on` returns
/// `false`; the caller then drops the result.
pub(crate) fn decode(
    batch: &Batch,
    form: &SampleForm,
    decoder: &ImageDecoder,
    engine: &Engine,
    epoch: u64,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<Vec<Decoded>> {
    let mut of_field = |field: usize| {
        let is_image = *batch.fields()[field].kind() == FieldKind::RgbImage;
        match &form.images {
            Images::Resized(images) if is_image => {
                let bytes = batch.len().saturating_mul(images.image_bytes());
                let mut all = array::take(engine, bytes)?;
                decoder.decode_while(batch, field, images, epoch, &mut all, &mut *go_on)?;
                Ok(Decoded::Resized(Some(all)))
            }
            Images::Decoded if is_image => {
                Ok(Decoded::Each(decode_jpegs(batch, field, decoder, engine, &mut *go_on)?))
            }
            _ => Ok(Decoded::Each(Vec::new())),
        }
    };
    (0..batch.fields().len()).map(&mut of_field).collect()
}

/// Returns the pixels of each image, or `None` if it is stored as pixels.
fn decode_jpegs(
    batch: &Batch,
    field: usize,
    decoder: &ImageDecoder,
    engine: &Engine,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<Vec<Option<Buffer>>> {
    let mut decoded = Vec::with_capacity(batch.len());
    for at in 0..batch.len() {
        decoded.push(match batch.value(at, field)? {
            Value::Image(image) if image.mode == ImageMode::Jpeg => {
                decoder.check(batch, at, field)?;
                Some(array::take(engine, image.rgb_bytes())?)
            }
            _ => None,
        });
    }
    let images = decoded.iter_mut().enumerate();
    let mut images: Vec<_> =
        images.filter_map(|(at, rgb)| Some((at, &mut rgb.as_mut()?[..]))).collect();
    decoder.decode_each(batch, field, &mut images, go_on)?;
    Ok(decoded)
}

impl SampleForm {
    /// Calls the transform, if there is one, with each array of images and the ids of its samples. A note on its
    /// exception names the samples.
    pub(crate) fn transform(
        &self,
        fields: &Bound<'_, PyDict>,
        image_fields: &[&str],
        ids: &Bound<'_, PyAny>,
        is_sample: bool,
    ) -> Result<()> {
        let Some(transform) = &self.transform else { return Ok(()) };
        let transform = transform.bind(fields.py());
        for name in image_fields {
            let Some(images) = fields.get_item(name)? else { continue };
            // A batch of one image, over the same memory.
            let images = if is_sample { images.get_item(fields.py().None())? } else { images };
            let noted = |error: PyErr| -> Failure {
                let some: Vec<String> = match ids.try_iter() {
                    Ok(ids) => ids.take(9).flatten().map(|id| id.to_string()).collect(),
                    Err(_) => Vec::new(),
                };
                let more = if some.len() > 8 { ", …" } else { "" };
                let some = some[..some.len().min(8)].join(", ");
                let note =
                    format!("in the transform of field `{name}` of the samples {some}{more}");
                // Without the note, the exception is still the right one.
                let _ = error.value(fields.py()).call_method1("add_note", (note,));
                error.into()
            };
            let returned = transform.call1((images, ids)).map_err(noted)?;
            if !returned.is_none() {
                let message = "the transform must change the images in place and return None";
                return Err(noted(PyTypeError::new_err(message)));
            }
        }
        Ok(())
    }

    /// Returns the id of one sample as the transform gets it.
    pub(crate) fn one_id(py: Python<'_>, id: u64) -> Bound<'_, PyAny> {
        PyArray1::from_slice(py, &[id]).into_any()
    }
}
