//! The forms of a workload.

use super::{ALL, Workload};
use crate::failure::Failure;
use crate::plan::Plan;

/// A form of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Variant {
    /// Its name on the command line and in results.
    pub(crate) name: &'static str,
    /// Its line in the help.
    pub(crate) about: &'static str,
    /// Whether it is a part of runs that name no variants.
    pub(crate) is_default: bool,
}

impl Variant {
    pub(super) const fn usual(name: &'static str, about: &'static str) -> Self {
        Self { name, about, is_default: true }
    }

    pub(super) const fn special(name: &'static str, about: &'static str) -> Self {
        Self { name, about, is_default: false }
    }
}

/// Returns the variants that a plan names, or the usual ones if it names none of these.
pub(super) fn chosen(plan: &Plan, variants: &[Variant]) -> Vec<&'static str> {
    let names = |is_wanted: &dyn Fn(&Variant) -> bool| -> Vec<&'static str> {
        variants.iter().filter(|it| is_wanted(it)).map(|it| it.name).collect()
    };
    match names(&|variant| is_named(plan, variant)) {
        named if named.is_empty() => names(&|variant| variant.is_default),
        named => named,
    }
}

fn is_named(plan: &Plan, variant: &Variant) -> bool {
    plan.variants.iter().any(|name| name == variant.name)
}

/// Returns an error for a variant that no workload has, and a note for workloads that have none of those that the plan
/// names.
pub(super) fn check_variants(
    plan: &Plan,
    workloads: &[&dyn Workload],
) -> Result<Option<String>, Failure> {
    let all = || workloads.iter().flat_map(|workload| workload.variants());
    if let Some(name) = plan.variants.iter().find(|name| all().all(|it| it.name != **name)) {
        let of_another = ALL.iter().find(|it| it.variants().iter().any(|it| it.name == *name));
        if let Some(workload) = of_another {
            let of = workload.name();
            let message = format!("`{name}` is a variant of `{of}`; name that with --workloads");
            return Err(Failure::Usage { message });
        }
        let list = |workload: &&dyn Workload| {
            let names: Vec<_> = workload.variants().iter().map(|it| it.name).collect();
            (!names.is_empty()).then(|| format!("`{}` has {}", workload.name(), names.join(", ")))
        };
        let known: Vec<String> = workloads.iter().filter_map(list).collect();
        let known = match known.as_slice() {
            [] => "none of the workloads has variants".to_owned(),
            known => known.join("; "),
        };
        let message = format!("there is no variant `{name}`: {known}");
        return Err(Failure::Usage { message });
    }
    let deaf = workloads.iter().filter(|it| !it.variants().iter().any(|it| is_named(plan, it)));
    let deaf: Vec<&str> = deaf.map(|workload| workload.name()).collect();
    let has_effect = plan.variants.is_empty() || deaf.is_empty();
    Ok((!has_effect).then(|| format!("`--variants` has no effect on {}", deaf.join(", "))))
}

#[cfg(test)]
mod tests {
    use super::*;

    const VARIANTS: [Variant; 3] =
        [Variant::usual("a", ""), Variant::usual("b", ""), Variant::special("c", "")];

    fn plan(names: &[&str]) -> Plan {
        Plan { variants: names.iter().map(|name| (*name).into()).collect(), ..Plan::default() }
    }

    #[test]
    fn the_usual_variants_are_measured_unless_others_are_named() {
        assert_eq!(chosen(&plan(&[]), &VARIANTS), ["a", "b"]);
        assert_eq!(chosen(&plan(&["c", "a"]), &VARIANTS), ["a", "c"]);
        assert_eq!(chosen(&plan(&["of another workload"]), &VARIANTS), ["a", "b"]);
    }

    #[test]
    fn unknown_variants_are_refused_with_a_list() {
        let workloads = ["rand", "shards"].map(|name| super::super::by_name(name).unwrap());
        let message = check_variants(&plan(&["shufled"]), &workloads).unwrap_err().to_string();
        assert!(message.contains("`shufled`") && message.contains("shuffled"), "{message}");
        let note = check_variants(&plan(&["blocks"]), &workloads).unwrap().unwrap();
        assert_eq!(note, "`--variants` has no effect on rand");
        assert_eq!(check_variants(&plan(&[]), &workloads).unwrap(), None);
        let message = check_variants(&plan(&["fresh"]), &workloads).unwrap_err().to_string();
        assert_eq!(message, "`fresh` is a variant of `weights`; name that with --workloads");
        let message = check_variants(&plan(&["x"]), &workloads[..1]).unwrap_err().to_string();
        assert!(message.contains("none of the workloads has variants"), "{message}");
    }
}
