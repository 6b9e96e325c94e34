//! A process that reads a dataset again and again does not grow, with any memory manager. This test
//! has a program of its own, since the memory of other tests would count.
#![cfg(all(target_os = "linux", feature = "beton"))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

use ringmain::beton::{
    Allocation, ArraySpec, BetonReader, Field, FieldKind, Handlers, Header, Member, MemoryManager,
    Order, RowLayout, SampleOptions,
};
use ringmain::{BackendKind, Engine, Kind, Residency};
use support::{allocated_bytes, resident_bytes};

const PAGE: u64 = 2 << 20;
const PAGES: u64 = 96;
const SAMPLE_BYTES: usize = 48 << 10;
const SAMPLES_OF_PAGE: u64 = PAGE / SAMPLE_BYTES as u64;
const LIMIT_BYTES: usize = 24 << 20;
/// The allowance beside the pool: the metadata, stacks, code, and what the OS cache maps at a time,
/// with the neighbours that a fault brings in.
const SLACK_BYTES: u64 = 72 << 20;

const EPOCHS: u64 = 8;
/// The limit on the growth of memory beside the pool from the second epoch to the last. A leaked
/// batch would be 1.5 MiB.
const GROWTH_BYTES_MAX: u64 = 4 << 20;

#[test]
fn epochs_do_not_make_the_process_grow() {
    let dir = support::temp_dir();
    let path = dir.path().join("large.beton");
    write(&path);
    let cache = MemoryManager::ProcessCache { pages: 3.try_into().unwrap() };
    for (kind, memory) in [
        (BackendKind::Pread, MemoryManager::Direct),
        (BackendKind::Pread, cache),
        (BackendKind::Mmap, MemoryManager::OsCache),
    ] {
        let engine = Engine::builder().backend(kind).residency(Residency::Keep);
        let engine = engine.memory_limit_bytes(LIMIT_BYTES).build().unwrap();
        let reader = BetonReader::open(&engine, &path).unwrap();
        let open_pages = 1.try_into().unwrap();
        let quasi = Order::PageShuffled { seed: 1, open_pages };
        let options = SampleOptions::new().memory_manager(memory).order(quasi).batch_size(32);
        let mut source = options.open(&reader).unwrap();
        let (before, mut most) = (resident_bytes(), 0);
        let mut after_epoch = Vec::new();
        for epoch in 0..EPOCHS {
            source.set_epoch(epoch);
            let mut samples = 0;
            while let Some(batch) = source.next_batch().unwrap() {
                for (id, array) in batch
                    .ids()
                    .iter()
                    .zip(batch.arrays(0).unwrap().bytes.chunks_exact(SAMPLE_BYTES))
                {
                    assert!(array[..8] == id.to_le_bytes() && array[SAMPLE_BYTES - 1] == 0x5A);
                    samples += 1;
                }
                most = resident_bytes().max(most);
                let stats = engine.pool().stats();
                assert!(stats.in_use_bytes + stats.idle_bytes <= LIMIT_BYTES / 2, "{stats:?}");
            }
            assert_eq!(samples, PAGES * SAMPLES_OF_PAGE);
            // How many buffers the pool has touched depends on how far the reading thread ran ahead.
            let stats = engine.pool().stats();
            let pool_bytes = (stats.in_use_bytes + stats.idle_bytes) as u64;
            after_epoch.push(allocated_bytes().saturating_sub(pool_bytes));
        }
        let grown = after_epoch[EPOCHS as usize - 1].saturating_sub(after_epoch[1]);
        assert!(grown <= GROWTH_BYTES_MAX, "{memory:?}: {after_epoch:?}");
        let growth = most.saturating_sub(before);
        assert!(growth <= LIMIT_BYTES as u64 + SLACK_BYTES, "{memory:?} grew by {growth} bytes");
    }
}

/// The bytes are not zeros, as the pages of a hole would all be the same page.
fn write(path: &Path) {
    let spec = ArraySpec::new(Kind::U8.into(), &[SAMPLE_BYTES]).unwrap();
    let fields = [Field::new("array", FieldKind::NdArray(spec)).unwrap()];
    let layout = RowLayout::new(&fields, &Handlers::new(), path).unwrap();
    let samples = PAGES * SAMPLES_OF_PAGE;
    let mut header = Header { fields: 1, page_bytes: PAGE as u32, samples, alloc_table_ptr: 0 };
    let pages_at = header.pages_at(layout.row_bytes() as u64).unwrap();
    header.alloc_table_ptr = pages_at + PAGES * PAGE;
    let mut file = File::create(path).unwrap();
    file.write_all(&header.encode()).unwrap();
    file.write_all(&fields[0].encode()).unwrap();
    let ptr_of = |sample| {
        pages_at + sample / SAMPLES_OF_PAGE * PAGE + sample % SAMPLES_OF_PAGE * SAMPLE_BYTES as u64
    };
    let mut row = vec![0; layout.row_bytes()];
    for sample in 0..samples {
        assert!(layout.put(&mut row, 0, Member::Array { ptr: ptr_of(sample) }));
        file.write_all(&row).unwrap();
    }
    let mut bytes = vec![0x5A; SAMPLE_BYTES];
    for sample in 0..samples {
        file.seek(SeekFrom::Start(ptr_of(sample))).unwrap();
        bytes[..8].copy_from_slice(&sample.to_le_bytes());
        file.write_all(&bytes).unwrap();
    }
    file.set_len(header.alloc_table_ptr).unwrap();
    file.seek(SeekFrom::End(0)).unwrap();
    for sample in 0..samples {
        let row = Allocation { sample, ptr: ptr_of(sample), size: SAMPLE_BYTES as u64 };
        file.write_all(&row.encode()).unwrap();
    }
}
