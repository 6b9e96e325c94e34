//! Rates in a plan: `rate_per_s = 1000` or `rate_per_s = [500, 1000]`.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// One rate is written as a number, so that older readers of `run.json` understand it.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "operations a second: 1000, or a list of such numbers")]
pub(super) enum Written {
    One(u64),
    Several(Vec<u64>),
}

pub(super) fn serialize<S: Serializer>(rates: &[u64], serializer: S) -> Result<S::Ok, S::Error> {
    match rates {
        [rate] => Written::One(*rate),
        rates => Written::Several(rates.to_vec()),
    }
    .serialize(serializer)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<u64>, D::Error> {
    Ok(match Written::deserialize(deserializer)? {
        Written::One(rate) => vec![rate],
        Written::Several(rates) => rates,
    })
}

#[cfg(test)]
mod tests {
    use crate::plan::{Plan, render_plan};

    #[test]
    fn one_rate_is_a_number_and_several_are_a_list() {
        for (text, rates) in
            [("rate_per_s = 1000", vec![1000]), ("rate_per_s = [1, 2]", vec![1, 2])]
        {
            let plan: Plan = toml::from_str(text).unwrap();
            assert_eq!(plan.rates_per_s, rates);
            let again: Plan = toml::from_str(&render_plan(&plan).unwrap()).unwrap();
            assert_eq!(again, plan);
        }
        let one = Plan { rates_per_s: vec![7], ..Plan::default() };
        assert!(render_plan(&one).unwrap().contains("rate_per_s = 7\n"));
    }
}
