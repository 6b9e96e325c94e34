//! Every format by URL, through an ordinary engine.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests are tests"
)]

mod support;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use ringmain::beton::{BetonReader, BetonWriter, Field, FieldKind};
use ringmain::shards::{Order, ShardDamage, ShardOptions, ShardSource, encode_shard_bytes};
use ringmain::weights::{LoadOptions, Weights};
use ringmain::{Damage, Engine, Error, Kind};
use ringmain_object_store::disk_cache::{DiskCache, DiskCacheOptions};
use ringmain_object_store::remote::{RemoteOptions, UrlBackend};
use ringmain_test_server::Fault;
use support::{Store, pattern, quick, url};

fn engine(store: &Store) -> Engine {
    engine_with(store, quick())
}

fn engine_with(store: &Store, remote: RemoteOptions) -> Engine {
    let wrapper = UrlBackend::wrapper(store.options().remote(remote));
    Engine::builder().ignore_profile().wrap_backend(wrapper).build().expect("an engine")
}

/// An engine with a cache on the local disk, and the cache.
fn engine_with_cache(store: &Store, folder: &Path) -> (Engine, DiskCache) {
    let cache = DiskCache::open(folder, DiskCacheOptions::new(1 << 30)).expect("a cache");
    let wrapper = UrlBackend::wrapper(store.options().disk_cache(cache.clone()));
    let engine = Engine::builder().ignore_profile().wrap_backend(wrapper).build();
    (engine.expect("an engine"), cache)
}

/// A file of NumPy's format with `u32` rows.
fn npy(numbers: &[u32], width: usize) -> Vec<u8> {
    let rows = numbers.len() / width;
    let dict = format!("{{'descr': '<u4', 'fortran_order': False, 'shape': ({rows}, {width}), }}");
    let header = format!("{dict:<117}\n");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend(u16::try_from(header.len()).unwrap().to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    bytes
}

#[test]
fn arrays() -> Result<(), Box<dyn std::error::Error>> {
    let store = Store::new();
    let numbers: Vec<u32> = (0..100_000).collect();
    let url = store.put("folder/numbers.npy", npy(&numbers, 10));
    let engine = engine(&store);
    let array = engine.open_npy(&url)?;
    assert_eq!(array.shape(), [10_000, 10]);
    assert_eq!(array.at(77)?.read_vec::<u32>()?, numbers[770..780]);
    let rows: Vec<_> = [9_000, 3, 4].iter().map(|at| array.at(*at)).collect::<Result<_, _>>()?;
    let mut elements = vec![0u32; 30];
    engine.read_many(&rows, &mut elements)?;
    assert_eq!(elements[..10], numbers[90_000..90_010]);
    assert_eq!(array.read_vec::<u32>()?, numbers);
    let raw = engine.open_raw(&url, Kind::U8, &[6], 0)?;
    assert_eq!(raw.read_vec::<u8>()?, b"\x93NUMPY");
    // The same engine reads files.
    let path = store.folder.path().join("folder/numbers.npy");
    assert_eq!(engine.open_npy(&path)?.read_vec::<u32>()?, numbers);
    assert!(engine.describe_file(&url)?.contains("s3://bucket"));
    Ok(())
}

#[test]
fn odd_keys_are_read_as_they_are() -> Result<(), Box<dyn std::error::Error>> {
    let store = Store::new();
    let engine = engine(&store);
    for key in [
        "with space.bin",
        "100%.bin",
        "a%20b.bin",
        "ünïcode – 文/x.bin",
        "plus+and&=#.bin",
        "'quotes\"[]{}^`|~!*().bin",
        ".hidden/..x/...bin",
    ] {
        let bytes = pattern(5000 + key.len());
        let url = store.put(key, &bytes);
        let view = engine.open_raw(&url, Kind::U8, &[bytes.len()], 0)?;
        assert!(view.read_vec::<u8>()? == bytes, "{key}");
    }
    // A key with two slashes cannot be addressed, and is not taken for another one.
    store.put("a/b.bin", pattern(10));
    let error = engine.open_raw("s3://bucket/a//b.bin", Kind::U8, &[10], 0).unwrap_err();
    assert!(error.to_string().contains("two slashes"), "{error}");
    Ok(())
}

#[test]
fn an_object_of_no_bytes_is_an_error_of_each_format() -> Result<(), Box<dyn std::error::Error>> {
    let store = Store::new();
    let url = store.put("empty", "");
    let engine = engine(&store);
    assert_eq!(engine.open_raw(&url, Kind::U8, &[0], 0)?.read_vec::<u8>()?, b"");
    assert_eq!(engine.open_rows(&url, Kind::F32, &[7], 0)?.shape(), [0, 7]);
    let errors = [
        engine.open_raw(&url, Kind::U8, &[1], 0).err(),
        engine.open_npy(&url).err(),
        ShardSource::open(&engine, [&url]).err(),
        Weights::open(&engine, &url).err(),
        BetonReader::open(&engine, &url).err(),
    ];
    for error in errors {
        let text = error.expect("an error").to_string();
        assert!(text.contains("s3://bucket/empty"), "{text}");
    }
    Ok(())
}

const WIDTH: usize = 16;

/// Writes shards whose first value of each row is its id.
fn put_shards(store: &Store, shards: usize, rows: usize) {
    for shard in 0..shards {
        let ids = (0..rows).map(|row| (shard * rows + row) as f64);
        let values: Vec<f64> =
            ids.flat_map(|id| (0..WIDTH).map(move |at| id + at as f64)).collect();
        let bytes = encode_shard_bytes(&values, WIDTH).unwrap();
        store.put(&format!("corpus/part-{shard:03}.shard"), bytes);
    }
    store.put("corpus/readme.txt", "no shard");
    store.put("corpus/below/part-999.shard", "another folder");
}

/// Checks a batch and adds its rows to those that were seen.
fn check_rows(batch: &ringmain::shards::RowBatch, seen: &mut BTreeSet<u64>) {
    let rows = batch.rows_f64().expect("rows of f64");
    for (id, row) in batch.row_ids().iter().zip(rows.chunks(WIDTH)) {
        let expected: Vec<f64> = (0..WIDTH).map(|at| (*id + at as u64) as f64).collect();
        assert_eq!(row, expected, "row {id}");
        assert!(seen.insert(*id), "row {id} came twice");
    }
}

#[test]
fn a_folder_of_shards() -> Result<(), Box<dyn std::error::Error>> {
    let store = Store::new();
    // More than one page of the server's lists.
    put_shards(&store, 120, 20);
    let engine = engine(&store);
    for folder in ["s3://bucket/corpus", "s3://bucket/corpus/"] {
        let options = ShardOptions::new().order(Order::Shuffled { seed: 3 }).batch_size(64);
        let mut source = options.open_dir(&engine, folder)?;
        assert_eq!(source.total_rows(), 2400);
        let mut seen = BTreeSet::new();
        while let Some(batch) = source.next_batch()? {
            check_rows(&batch, &mut seen);
        }
        assert_eq!(seen.len(), 2400);
    }
    let on_disk = ShardSource::open_dir(&engine, store.folder.path().join("corpus"))?;
    assert_eq!(on_disk.total_rows(), 2400);
    let error = ShardSource::open_dir(&engine, "s3://bucket/corpus/below/x").unwrap_err();
    assert!(error.is_not_found(), "{error}");
    store.put("empty/readme.txt", "no shard");
    let error = ShardSource::open_dir(&engine, "s3://bucket/empty").unwrap_err();
    let damage = error.damage();
    assert!(matches!(damage, Some(Damage::Shard(ShardDamage::Empty { .. }))), "{error}");
    let error = ShardSource::open_dir(&engine, "s3://other/corpus").unwrap_err();
    assert!(error.to_string().contains("NoSuchBucket"), "{error}");
    Ok(())
}

/// What was read once comes from the disk, also in another process, as long as the object is the same one.
#[test]
fn objects_are_kept_in_the_disk_cache() -> Result<(), Box<dyn std::error::Error>> {
    let store = Store::new();
    put_shards(&store, 4, 400);
    let folder = tempfile::tempdir()?;
    let mut object_reads = Vec::new();
    for _ in 0..2 {
        let (engine, cache) = engine_with_cache(&store, folder.path());
        let options = ShardOptions::new().order(Order::Shuffled { seed: 5 }).batch_size(50);
        let mut source = options.open_dir(&engine, "s3://bucket/corpus")?;
        let mut seen = BTreeSet::new();
        while let Some(batch) = source.next_batch()? {
            check_rows(&batch, &mut seen);
        }
        assert_eq!(seen.len(), 1600);
        object_reads.push(cache.stats().store.reads);
    }
    // Four shards of one block each.
    assert_eq!(object_reads, [4, 0]);

    let (engine, cache) = engine_with_cache(&store, folder.path());
    store.put("digits", "0123456789");
    let digits = engine.open_raw(url("digits"), Kind::U8, &[10], 0)?;
    assert_eq!(digits.read_vec::<u8>()?, b"0123456789");
    // Files are not kept, and a batch may have both.
    let path = store.folder.path().join("digits");
    let file = engine.open_raw(&path, Kind::U8, &[10], 0)?;
    let parts = [file.index(&[(0..5).into()])?, digits.index(&[(5..10).into()])?];
    let mut both = [0; 10];
    engine.read_many(&parts, &mut both)?;
    assert_eq!(both, *b"0123456789");
    let error = engine.read_many(&[file.at(0)?, digits.at(9)?], &mut [0u8; 1]).unwrap_err();
    assert!(error.to_string().contains("2"), "{error}");
    assert_eq!((cache.stats().store.reads, cache.stats().hits.reads), (1, 1));
    // Another object under the same URL is another one.
    store.put("digits", "9876543210");
    let fresh = engine.open_raw(url("digits"), Kind::U8, &[10], 0)?;
    assert_eq!(fresh.read_vec::<u8>()?, b"9876543210");
    assert!(engine.describe_file(url("digits"))?.contains("cache"));
    Ok(())
}

/// The server dies in the middle of an epoch and comes back: the epoch continues, and has every row once.
#[test]
fn an_epoch_outlives_its_server() -> Result<(), Box<dyn std::error::Error>> {
    let mut store = Store::new();
    put_shards(&store, 10, 400);
    let engine = engine(&store);
    let options = ShardOptions::new().order(Order::Shuffled { seed: 5 }).batch_size(50);
    let mut source = options.open_dir(&engine, "s3://bucket/corpus")?;
    let mut seen = BTreeSet::new();
    let mut batches = 0;
    while let Some(batch) = source.next_batch()? {
        check_rows(&batch, &mut seen);
        batches += 1;
        if batches == 10 {
            store.server.stop();
            std::thread::sleep(Duration::from_millis(300));
            store.server.start_again();
        }
    }
    assert_eq!(seen.len(), 4000);
    Ok(())
}

/// The shards are replaced in the middle of an epoch: an error, never rows of both.
#[test]
fn a_shard_that_is_replaced_ends_the_epoch() -> Result<(), Box<dyn std::error::Error>> {
    let store = Store::new();
    put_shards(&store, 4, 400);
    let engine = engine(&store);
    let options = ShardOptions::new().batch_size(50).prefetch_window_bytes(0);
    let mut source = options.open_dir(&engine, "s3://bucket/corpus")?;
    let mut seen = BTreeSet::new();
    check_rows(&source.next_batch()?.expect("a batch"), &mut seen);
    let values = vec![-1.0; 400 * WIDTH];
    for shard in 0..4 {
        let bytes = encode_shard_bytes(&values, WIDTH)?;
        store.put(&format!("corpus/part-{shard:03}.shard"), bytes);
    }
    let error = loop {
        match source.next_batch() {
            Ok(Some(batch)) => check_rows(&batch, &mut seen),
            Ok(None) => panic!("the epoch ended"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::Changed { .. }), "{error:?}");
    Ok(())
}

#[test]
fn datasets() -> Result<(), Box<dyn std::error::Error>> {
    let store = Store::new();
    let path = store.folder.path().join("samples.beton");
    let fields = [Field::new("n", FieldKind::Int)?, Field::new("text", FieldKind::Bytes)?];
    BetonWriter::new(fields).write_indexed(&path, 300, |id, sample| {
        sample.int(id as i64)?.bytes(&vec![id as u8; 1000 + id as usize])?;
        Ok(())
    })?;
    let reader = BetonReader::open(&engine(&store), url("samples.beton"))?;
    assert_eq!(reader.len(), 300);
    let batch = reader.read_batch(&[299, 0, 150])?;
    assert_eq!(batch.ints(0), Some(&[299, 0, 150][..]));
    let texts = batch.blobs(1).expect("bytes");
    assert_eq!(texts.get(0), Some(&vec![43; 1299][..]));
    Ok(())
}

/// A safetensors file with one tensor of `len` floats.
fn safetensors(name: &str, value: f32, len: usize) -> Vec<u8> {
    let bytes = len * 4;
    let json =
        format!(r#"{{"{name}":{{"dtype":"F32","shape":[{len}],"data_offsets":[0,{bytes}]}}}}"#);
    let values = vec![value; len].into_iter().flat_map(f32::to_le_bytes);
    let head = (json.len() as u64).to_le_bytes().into_iter().chain(json.bytes());
    head.chain(values).collect()
}

#[test]
fn weights_of_a_file_an_index_and_a_folder() -> Result<(), Box<dyn std::error::Error>> {
    let store = Store::new();
    store.put("one/model.safetensors", safetensors("w", 1.0, 50_000));
    store.put("two/model-1.safetensors", safetensors("a", 2.0, 10));
    store.put("two/model-2.safetensors", safetensors("b", 3.0, 20));
    let index = r#"{"weight_map":{"a":"model-1.safetensors","b":"model-2.safetensors"}}"#;
    store.put("two/model.safetensors.index.json", index);
    let engine = engine(&store);
    let check = |url: &str, tensor: &str, value: f32, len: usize| {
        let weights = Weights::open(&engine, url)?;
        let read = weights.read(tensor)?;
        assert_eq!(read.as_slice::<f32>()?, vec![value; len], "{url}");
        let loaded = weights.load(LoadOptions::default())?.collect::<Result<Vec<_>, _>>()?;
        assert_eq!(loaded.len(), weights.len(), "{url}");
        Ok::<_, Box<dyn std::error::Error>>(())
    };
    check("s3://bucket/one/model.safetensors", "w", 1.0, 50_000)?;
    check("s3://bucket/one", "w", 1.0, 50_000)?;
    check("s3://bucket/one/", "w", 1.0, 50_000)?;
    check("s3://bucket/two/model.safetensors.index.json", "b", 3.0, 20)?;
    check("s3://bucket/two", "a", 2.0, 10)?;
    let missing = Weights::open(&engine, "s3://bucket/three").unwrap_err();
    assert!(missing.is_not_found(), "{missing}");
    let index = r#"{"weight_map":{"a":"model-3.safetensors"}}"#;
    store.put("two/model.safetensors.index.json", index);
    let error = Weights::open(&engine, "s3://bucket/two").unwrap_err();
    assert!(error.to_string().contains("model-3.safetensors"), "{error}");
    Ok(())
}

/// The message of the engine shows no more of a URL than that of the backend.
#[test]
fn no_message_of_the_engine_shows_a_secret() {
    let store = Store::new();
    let engine = engine(&store);
    for bad in [
        "https://host/x?X-Amz-Signature=5ecret",
        "s3://me:5ecret@bucket/x",
        "s3://bucket/x?token=5ecret",
    ] {
        let errors = [
            engine.open_npy(bad).err(),
            engine.open_raw(bad, Kind::U8, &[1], 0).err(),
            ShardSource::open_dir(&engine, bad).err(),
            ShardSource::open(&engine, [Path::new(bad)]).err(),
            Weights::open(&engine, bad).err(),
            BetonReader::open(&engine, bad).err(),
        ];
        for error in errors {
            let error = error.expect("a bad URL");
            let text = format!("{error} {error:?}");
            assert!(!text.contains("5ecret"), "{text}");
            assert!(text.contains("leave it out"), "{text}");
        }
    }
}

const MIB: usize = 1 << 20;

/// The store refuses half of all requests.
#[cfg(target_os = "linux")]
fn refuse_half(store: &Store) {
    // Not every second one: two requests that take turns would be one that always fails.
    store.server.set_faults(|info| match info.number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 63 {
        0 => vec![Fault::status(503)],
        _ => Vec::new(),
    });
}

/// Few requests of few bytes, so that memory that is kept stands out.
#[cfg(target_os = "linux")]
fn modest() -> RemoteOptions {
    RemoteOptions { requests_max: 8, in_flight_bytes: 8 * MIB, part_bytes: MIB, ..quick() }
}

/// Reads four times, and panics if the memory of the process grows after the second time. By then, the allocator has what
/// it keeps for itself.
#[cfg(target_os = "linux")]
fn assert_flat(what: &str, mut read_all: impl FnMut()) {
    let passes = [(); 4].map(|()| {
        read_all();
        private_bytes()
    });
    eprintln!(
        "{what}: RssAnon after each of four passes: {:?} KiB",
        passes.map(|bytes| bytes >> 10)
    );
    assert!(passes[3] <= passes[1] + 4 * MIB, "{what}: {passes:?}");
}

/// An object ten times as large as the limit of the memory, while the store refuses half of all requests.
#[cfg(target_os = "linux")]
#[test]
fn memory_stays_flat_in_a_storm() -> Result<(), Box<dyn std::error::Error>> {
    ringmain_backends::conformance::child::in_child("memory_stays_flat_in_a_storm", || {
        let folder = tempfile::tempdir().expect("a folder");
        let file = std::fs::File::create(folder.path().join("large")).expect("a file");
        file.set_len(160 * MIB as u64).expect("its length");
        let server = ringmain_test_server::Server::start([("bucket", folder.path())]);
        let store = Store { server, folder };
        let wrapper = UrlBackend::wrapper(store.options().remote(modest()));
        let builder = Engine::builder().memory_limit_bytes(16 * MIB).wrap_backend(wrapper);
        let engine = builder.build().expect("an engine");
        let view = engine.open_raw(url("large"), Kind::U8, &[160, MIB], 0).expect("a view");
        refuse_half(&store);
        let mut row = vec![1u8; 4 * MIB];
        assert_flat("a view of 160 MiB with 16 MiB", || {
            for at in (0..160).step_by(4) {
                let rows = view.index(&[(at..at + 4).into()]).expect("rows");
                rows.read_into(&mut row).expect("their bytes");
                assert!(row.iter().all(|byte| *byte == 0));
            }
        });
    });
    Ok(())
}

/// Epochs over ten times the memory of the engine, from a store that refuses half of all requests.
#[cfg(target_os = "linux")]
fn epochs_in_a_storm(disk_cache: Option<DiskCacheOptions>) {
    const SHARD_ROWS: usize = 64 << 10;
    let store = Store::new();
    // 8 MiB each.
    put_shards(&store, 10, SHARD_ROWS);
    let folder = tempfile::tempdir().expect("a folder");
    let mut options = store.options().remote(modest());
    let what = match disk_cache {
        Some(cache) => {
            options = options.disk_cache(DiskCache::open(folder.path(), cache).expect("a cache"));
            "shards of 80 MiB with 8 MiB and a disk cache"
        }
        None => "shards of 80 MiB with 8 MiB",
    };
    let builder = Engine::builder().memory_limit_bytes(8 * MIB).ignore_profile();
    let engine = builder.wrap_backend(UrlBackend::wrapper(options)).build().expect("an engine");
    refuse_half(&store);
    assert_flat(what, || {
        let shards = ShardOptions::new().batch_size(4096).prefetch_window_bytes(4 * MIB);
        let mut source = shards.open_dir(&engine, "s3://bucket/corpus").expect("shards");
        let mut rows = 0;
        while let Some(batch) = source.next_batch().expect("a batch") {
            assert_eq!(batch.row_ids()[0], rows);
            rows += batch.len() as u64;
        }
        assert_eq!(rows, 10 * SHARD_ROWS as u64);
    });
}

#[cfg(target_os = "linux")]
#[test]
fn epochs_in_a_storm_keep_to_their_memory() {
    let test = "epochs_in_a_storm_keep_to_their_memory";
    ringmain_backends::conformance::child::in_child(test, || epochs_in_a_storm(None));
}

#[cfg(target_os = "linux")]
#[test]
fn epochs_in_a_storm_with_a_disk_cache_keep_to_their_memory() {
    let test = "epochs_in_a_storm_with_a_disk_cache_keep_to_their_memory";
    ringmain_backends::conformance::child::in_child(test, || {
        let memory_bytes = 4 * MIB;
        let block_bytes = MIB;
        // Half of the data fits.
        let options = DiskCacheOptions::new(40 * MIB as u64);
        epochs_in_a_storm(Some(DiskCacheOptions { block_bytes, memory_bytes, ..options }));
    });
}

#[cfg(target_os = "linux")]
fn private_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("the status");
    // Not VmRSS, which has pages of mapped files too: the kernel reclaims them and reads them again as it likes.
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("RssAnon");
    let kib: usize = line.trim().trim_end_matches(" kB").parse().expect("a number");
    kib << 10
}
