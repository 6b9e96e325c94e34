//! Values of every kind survive writing and reading, with any options.

use proptest::collection::vec;
use proptest::prelude::*;
use ringmain::Kind;
use ringmain::beton::{ArraySpec, Field, FieldKind, RegionAlignment};

use crate::model::{Value, all_fields, jpeg, round_trip, writer};
use crate::support::temp_dir;

fn kind_of(which: usize) -> FieldKind {
    all_fields()[which].kind().clone()
}

/// Long enough that few fit in a page. A sample has at most six fields, and all of them must fit in one page.
const LONG_BYTES: usize = 300_000;

fn value_of(which: usize) -> BoxedStrategy<Value> {
    let bytes = || vec(any::<u8>(), 0..300).prop_map(Value::Bytes);
    match which {
        0 => any::<i64>().prop_map(Value::Int).boxed(),
        1 => prop_oneof![
            (1u16..9, 1u16..9).prop_map(|(w, h)| Value::Raw(w, h, vec![7; usize::from(w * h) * 3])),
            (1u16..999, 1u16..999, 0usize..500)
                .prop_map(|(w, h, len)| Value::Jpeg(jpeg(w, h, len))),
        ]
        .boxed(),
        2 => (-1e9..1e9).prop_map(Value::Float).boxed(),
        3 => prop_oneof![9 => bytes(), 1 => Just(Value::Bytes(vec![3; LONG_BYTES]))].boxed(),
        4 => vec(any::<u8>(), 24).prop_map(Value::Array).boxed(),
        5 => any::<String>().prop_map(|s| Value::Json(serde_json::to_string(&s).unwrap())).boxed(),
        6 => vec(any::<u8>(), 10).prop_map(Value::Array).boxed(),
        _ => (any::<u32>(), proptest::option::of(vec(any::<u8>(), 0..50)))
            .prop_map(|(number, region)| Value::Custom(number, region))
            .boxed(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn samples_of_any_fields_survive_writing_and_reading(
        (which, samples) in vec(0usize..8, 1..7).prop_flat_map(|which| {
            let sample: Vec<_> = which.iter().map(|which| value_of(*which)).collect();
            (Just(which), vec(sample, 0..40))
        }),
        alignment in 0usize..3,
        workers in 1usize..5,
        is_deterministic: bool,
    ) {
        let field = |(at, which): (usize, &usize)| {
            Field::new(&format!("f{at}"), kind_of(*which)).unwrap()
        };
        let fields: Vec<Field> = which.iter().enumerate().map(field).collect();
        let alignment = RegionAlignment::ALL[alignment];
        let writer = writer(fields.clone())
            .alignment(alignment)
            .workers(workers)
            .deterministic(is_deterministic);
        let dir = temp_dir();
        round_trip(&dir.path().join("a.beton"), &writer, &fields, alignment, &samples);
    }
}

#[test]
fn values_can_be_filled_in_place() {
    let dir = temp_dir();
    let path = dir.path().join("a.beton");
    let spec = ArraySpec::new(Kind::U8.into(), &[4]).unwrap();
    let fields = vec![
        Field::new("a", FieldKind::Bytes).unwrap(),
        Field::new("b", FieldKind::NdArray(spec)).unwrap(),
    ];
    let fill = |byte: u8| {
        move |room: &mut [u8]| {
            room.fill(byte);
            Ok(())
        }
    };
    writer(fields.clone())
        .write_indexed(&path, 3, |id, to| {
            to.bytes_with(id as usize, fill(1))?.array_with(fill(2))?;
            Ok(())
        })
        .unwrap();
    let file = std::fs::read(&path).unwrap();
    let file = crate::model::File::take_apart(&file, &fields, RegionAlignment::Packed);
    let expected = |id: usize| vec![Value::Bytes(vec![1; id]), Value::Array(vec![2; 4])];
    assert_eq!(file.samples, [0, 1, 2].map(expected));
}

#[test]
fn direct_writing_makes_the_same_file() {
    let dir = temp_dir();
    let write = |name: &str, is_direct: bool| {
        let path = dir.path().join(name);
        let writer = writer(all_fields()[3..4].to_vec()).deterministic(true).direct(is_direct);
        let outcome = writer.write_indexed(&path, 300, |id, to| {
            to.bytes(&vec![id as u8; 30_000 + id as usize])?;
            Ok(())
        });
        outcome.map(|_| std::fs::read(&path).unwrap())
    };
    let buffered = write("a.beton", false).unwrap();
    match write("b.beton", true) {
        Ok(direct) => assert!(direct == buffered),
        Err(error) => {
            assert!(matches!(error, ringmain::Error::Unsupported { .. }), "{error}");
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        }
    }
}
