//! The engine of a measured process.

use std::sync::Arc;

use ringmain::Engine;
use ringmain::backends::{BackendOptions, open_backend};

use super::corrupt::Corrupting;
use super::task::Task;
use crate::failure::Failure;
use crate::plan::BackendChoice;

pub(super) fn open_engine(task: &Task) -> Result<Engine, Failure> {
    let mut options = BackendOptions::default();
    if let Some(depth) = task.setting.depth {
        options.depth_max = depth as usize;
        if let Some(threads) = task.backend.threads_at(depth) {
            options.threads_max = threads as usize;
        }
    }
    let memory_limit_bytes = usize::try_from(task.buffer_bytes).unwrap_or(usize::MAX);
    build_engine(task.backend, options, memory_limit_bytes, task.corrupt)
}

/// Opens the backend with its default options.
pub(crate) fn open_backend_of(backend: BackendChoice, corrupt: bool) -> Result<Engine, Failure> {
    build_engine(backend, BackendOptions::default(), 64 << 20, corrupt)
}

fn build_engine(
    backend: BackendChoice,
    mut options: BackendOptions,
    memory_limit_bytes: usize,
    corrupt: bool,
) -> Result<Engine, Failure> {
    backend.apply(&mut options);
    let mut builder = Engine::builder()
        .options(options.clone())
        .backend(backend.kind)
        .memory_limit_bytes(memory_limit_bytes)
        // `auto` is measured without the profile of this user.
        .ignore_profile();
    if corrupt {
        let opened = open_backend(backend.kind, &options)?;
        builder = builder.with_backend(Arc::new(Corrupting(opened)));
    }
    Ok(builder.build()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The description said "up to 1 requests".
    #[test]
    fn one_request_is_singular() {
        let pread = BackendChoice::plain(ringmain::BackendKind::Pread);
        let text = open_backend_of(pread, false).unwrap().describe().to_string();
        assert!(text.contains("up to 1 request in flight"), "{text}");
    }
}
