//! Weights without waiting.

use std::path::Path;
use std::sync::Arc;

use ringmain_backends::Job;

use super::AsyncEngine;
use crate::Result;
use crate::weights::{MmapOptions, Prefer, Prepared, Tensor, WeightSource, Weights};

#[cfg_attr(docsrs, doc(cfg(feature = "safetensors")))]
impl AsyncEngine {
    /// Opens a safetensors file or a model, as [`Weights::open`] does. [`batches`](Self::batches) makes a stream of the
    /// tensors of a [`Load`](crate::weights::Load).
    ///
    /// ```
    /// use futures::StreamExt;
    /// use ringmain::weights::LoadOptions;
    /// use ringmain::{AsyncEngine, Engine};
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("model.safetensors");
    /// # let json = r#"{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},
    /// #     "b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}}"#;
    /// # std::fs::write(&path, [&(json.len() as u64).to_le_bytes(), json.as_bytes(), b"abc"].concat())?;
    /// # futures::executor::block_on(async {
    ///
    /// let engine = AsyncEngine::new(Engine::new()?)?;
    /// let weights = engine.open_weights(&path).await?;
    /// assert_eq!(engine.read_tensor(&weights, "b").await?.bytes(), b"c");
    ///
    /// let mut tensors = engine.batches(weights.load(LoadOptions::new())?);
    /// let mut names = Vec::new();
    /// while let Some(tensor) = tensors.next().await {
    ///     names.push(tensor?.name().to_owned());
    /// }
    /// assert_eq!(names, ["a", "b"]);
    /// # Ok::<(), ringmain::Error>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open_weights(&self, path: impl AsRef<Path>) -> Job<Result<Weights>> {
        let path = path.as_ref().to_owned();
        self.run(move |engine| Weights::open(engine, path))
    }

    /// Reads a tensor, as [`Weights::read`] does.
    pub fn read_tensor(&self, weights: &Weights, name: &str) -> Job<Result<Tensor>> {
        let (weights, name) = (weights.clone(), name.to_owned());
        self.run(move |_| weights.read(&name))
    }

    /// Opens a file of weights, as [`WeightSource::open_with_options`] does.
    pub fn open_weight_source(
        &self,
        path: impl AsRef<Path>,
        prefer: Prefer,
        options: &MmapOptions,
    ) -> Job<Result<WeightSource>> {
        let (path, options) = (path.as_ref().to_owned(), options.clone());
        self.run(move |_| WeightSource::open_with_options(path, prefer, &options))
    }

    /// Makes a tensor ready, so that [`WeightSource::get_tensor_bytes`] with the same offset and length, and the use of
    /// its bytes, do not wait for the device: pages of a mapping are resident when the future is ready, until the system
    /// needs their memory. A backend has begun to read.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use ringmain::weights::{Prefer, Prepared, Unchanging, WeightSource};
    /// use ringmain::{AsyncEngine, Engine};
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("model.safetensors");
    /// # std::fs::write(&path, b"0123456789")?;
    /// # futures::executor::block_on(async {
    ///
    /// let engine = AsyncEngine::new(Engine::new()?)?;
    /// // SAFETY: the models of this program are written once, and only ever replaced by renaming.
    /// let unchanging = unsafe { Unchanging::promise() };
    /// let options = WeightSource::default_options();
    /// let source = engine.open_weight_source(&path, Prefer::Mmap(unchanging), &options).await?;
    /// let source = Arc::new(source);
    /// assert_eq!(engine.prepare_tensor(&source, 3, 4).await?, Prepared::InMemory);
    /// assert_eq!(&*source.get_tensor_bytes(3, 4)?, b"3456");
    /// # Ok::<(), ringmain::Error>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn prepare_tensor(
        &self,
        source: &Arc<WeightSource>,
        offset: usize,
        len: usize,
    ) -> Job<Result<Prepared>> {
        let source = Arc::clone(source);
        self.run(move |_| {
            let prepared = source.prepare_tensor(offset, len)?;
            let Some(mapped) = source.mapped() else { return Ok(prepared) };
            mapped.populate_range(offset..offset + len)?;
            Ok(Prepared::InMemory)
        })
    }
}
