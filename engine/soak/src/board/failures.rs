//! The texts of failures, from any process.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

const TEXT_BYTES: usize = 1500;
const TEXTS: usize = 16;

/// The first failures. Later ones are only counted.
#[repr(C)]
pub(crate) struct Failures {
    count: AtomicU32,
    texts: [[AtomicU8; TEXT_BYTES]; TEXTS],
}

impl Failures {
    pub(super) fn add(&self, text: &str) {
        let number = self.count.fetch_add(1, Ordering::SeqCst) as usize;
        let Some(place) = self.texts.get(number) else { return };
        for (place, byte) in place.iter().zip(text.bytes()) {
            place.store(byte, Ordering::SeqCst);
        }
    }

    pub(crate) fn count(&self) -> u32 {
        self.count.load(Ordering::SeqCst)
    }

    pub(crate) fn texts(&self) -> Vec<String> {
        let text = |bytes: &[AtomicU8; TEXT_BYTES]| {
            let bytes = bytes.iter().map(|byte| byte.load(Ordering::SeqCst));
            let bytes: Vec<u8> = bytes.take_while(|byte| *byte != 0).collect();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        self.texts.iter().take(self.count() as usize).map(text).collect()
    }
}
