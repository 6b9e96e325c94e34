//! Epochs over a corpus of shards.

use ringmain::Engine;
use ringmain::shards::{Order, RowBatch, RowType, ShardOptions, ShardSource};

use super::{Checked, Reader, Session, Step, name};
use crate::files::{CORPUS_SHARDS, DataFile, FileKind, ROWS, WIDTH};
use crate::model::Contents;
use crate::verdict::Pin;
use crate::ways::MEMORY_PATIENCE;

const JOB: usize = 2;

/// See the [module](self).
pub(super) struct ShardSession<'a> {
    way: usize,
    source: ShardSource,
    pins: Vec<Pin<'a>>,
    is_sequential: bool,
    rows_read: u64,
}

impl<'a> ShardSession<'a> {
    pub(super) fn open(
        reader: &mut Reader<'a>,
        way: usize,
        engine: &'a Engine,
    ) -> Checked<Option<Self>> {
        let shards = reader.files.of_kind(FileKind::Shard);
        let corpora: Vec<&[&DataFile]> = shards.chunks(CORPUS_SHARDS).collect();
        let corpus: &[&'a DataFile] = corpora[reader.dice.index(corpora.len())];
        let moments = reader.moments(corpus);
        let (options, is_sequential) = options(reader);
        match options.open(engine, corpus.iter().map(|file| &file.path)) {
            Ok(source) => Ok(reader.pins(corpus, &moments).map(|pins| Self {
                way,
                source,
                pins,
                is_sequential,
                rows_read: 0,
            })),
            Err(error) => {
                let pins = reader.pins_or_fail(corpus, &moments)?;
                reader.accept(way, &error, &pins).map(|()| None)
            }
        }
    }

    fn check(&mut self, reader: &Reader<'a>, batch: &RowBatch) -> Checked {
        let way = name(self.way);
        let is_next = |(at, id): (usize, &u64)| *id == self.rows_read + at as u64;
        if self.is_sequential && !batch.row_ids().iter().enumerate().all(is_next) {
            return Err(format!("{way}: WRONG ORDER of rows: {:?}", batch.row_ids()));
        }
        for (at, id) in batch.row_ids().iter().enumerate() {
            let (shard, row) = ((id / ROWS) as usize, id % ROWS);
            let Some(pin) = self.pins.get_mut(shard) else {
                return Err(format!("{way}: there is NO ROW {id}"));
            };
            let is_right = |contents| is_row(batch, at, row, contents);
            let checked = pin.check(reader.board, is_right, reader.files);
            checked.map_err(|wrong| format!("{way}: row {row} of a shard: {wrong}"))?;
        }
        self.rows_read += batch.len() as u64;
        let bytes = (batch.len() * WIDTH * 4) as u64;
        reader.board.tally.count_reads(self.way, JOB, batch.len() as u64, bytes);
        Ok(())
    }
}

fn options(reader: &mut Reader<'_>) -> (ShardOptions, bool) {
    let dice = &mut reader.dice;
    let is_sequential = dice.chance(40);
    let order = match is_sequential {
        true => Order::Sequential,
        false => Order::Shuffled { seed: dice.next() },
    };
    let row_type = if dice.chance(50) { RowType::F32 } else { RowType::F64 };
    let window_bytes = *dice.pick(&[0, 1, 100_000, 400_000]);
    let options = ShardOptions::new()
        .batch_size(dice.between(1, 200) as usize)
        .order(order)
        .row_type(row_type)
        .prefetch_window_bytes(window_bytes)
        .memory_patience(MEMORY_PATIENCE);
    (options, is_sequential)
}

fn is_row(batch: &RowBatch, at: usize, row: u64, contents: Contents) -> bool {
    let number = |column: usize| row * WIDTH as u64 + column as u64;
    let mut columns = 0..WIDTH;
    match (batch.rows_f32(), batch.rows_f64()) {
        (Some(rows), _) => {
            let row = &rows[at * WIDTH..][..WIDTH];
            columns.all(|column| row[column] == contents.value(number(column)))
        }
        (None, Some(rows)) => {
            let row = &rows[at * WIDTH..][..WIDTH];
            columns.all(|column| row[column] == f64::from(contents.value(number(column))))
        }
        (None, None) => false,
    }
}

impl<'a> Session<'a> for ShardSession<'a> {
    fn step(&mut self, reader: &mut Reader<'a>) -> Checked<Step> {
        reader.pulse.beat(JOB, self.way);
        match self.source.next_batch() {
            Ok(Some(batch)) => self.check(reader, &batch).map(|()| Step::More),
            Ok(None) if self.rows_read == ROWS * CORPUS_SHARDS as u64 => Ok(Step::Over),
            Ok(None) => {
                let (way, rows) = (name(self.way), self.rows_read);
                Err(format!("{way}: an epoch of shards ENDED EARLY, after {rows} rows"))
            }
            Err(error) => reader.accept(self.way, &error, &self.pins).map(|()| Step::Over),
        }
    }
}
