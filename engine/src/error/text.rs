//! The parts of messages that depend on the values in them, and the `Debug` text of an error.

use std::fmt;

use ringmain_backends::FileChange;

use super::Error;

ringmain_backends::__debug_as_message!(
    Error: NotFound Io Backend Truncated Changed Format OutsideFile NoSuchItem MemorySpent OutOfMemory
    CacheFull InvalidOption StateMismatch Unsupported InvalidItem Maker Transform Panicked IndexOutOfRange
    TooManyIndices InvalidIndex NonContiguous Shape Overflow UnknownDType ElementType BufferSize
);

/// Returns the subject and a colon, to begin a message with; empty if there is no subject.
pub(super) fn prefix(subject: Option<impl fmt::Display>) -> String {
    subject.map(|subject| format!("{subject}: ")).unwrap_or_default()
}

/// Returns a number and its noun: `1 byte`, `2 bytes`.
pub(crate) fn count(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Returns what a store says about a missing object. The operating system's own text says nothing new.
pub(super) fn missing_cause(cause: &std::io::Error) -> String {
    cause.get_ref().map(|cause| format!(": {cause}")).unwrap_or_default()
}

/// Returns what follows from a change of a file, and the way out.
pub(super) fn change_consequence(change: FileChange) -> &'static str {
    match change {
        FileChange::Removed => "; put it back and open it again, or leave it out",
        _ => ", so the bytes read may mix two versions; open it again",
    }
}

/// Returns why there is no memory for `what`. Waiting does not help if it is larger than all buffers.
pub(super) fn memory_spent(
    what: &str,
    needed_bytes: usize,
    in_use_bytes: usize,
    limit_bytes: usize,
) -> String {
    if needed_bytes <= limit_bytes {
        return format!(
            "no memory for {what} of {needed_bytes} bytes: {in_use_bytes} of {limit_bytes} bytes of \
             buffers are in use; drop batches, buffers or tensors sooner, raise the memory limit, or \
             read less at once"
        );
    }
    // Only tensors come from a pool that the caller made.
    if what == "a tensor" {
        return format!(
            "a tensor of {needed_bytes} bytes does not fit in a pool of {limit_bytes} bytes; raise \
             the pool's limit, or read the tensor without a pool"
        );
    }
    let way_out = match what {
        "a batch" => "or make the batches smaller",
        "a page" => "or use another memory manager",
        _ => "read a part of it, or read it with `read_vec` or `read_into`",
    };
    format!(
        "{what} of {needed_bytes} bytes does not fit in the engine's {limit_bytes} bytes of buffers \
         (about half of its memory limit); raise memory_limit_bytes, {way_out}"
    )
}

pub(super) fn cache_full(requested_bytes: u64, limit_bytes: u64, held_bytes: u64) -> String {
    if requested_bytes > limit_bytes {
        return "the file alone is larger; raise the limit, or map it without the cache".into();
    }
    format!(
        "{held_bytes} bytes are in use, locked or being opened; drop mappings that are no longer needed, \
         or raise the limit"
    )
}

/// Names the first samples of a batch, as in "a batch of 64 samples (3, 1, 4, …)".
pub(super) fn some_samples(samples: &[u64]) -> String {
    const NAMED: usize = 8;
    let names: Vec<String> = samples.iter().take(NAMED).map(u64::to_string).collect();
    let more = if samples.len() > NAMED { ", …" } else { "" };
    format!("a batch of {} ({}{more})", count(samples.len() as u64, "sample"), names.join(", "))
}
