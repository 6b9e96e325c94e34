//! The place of a process in a job of several processes.

use std::env;

use super::partition::Partition;
use crate::{Error, Result};

/// The place of a process in a job: its rank, the number of ranks, and its node.
///
/// torchrun sets the environment variables `RANK`, `WORLD_SIZE`, `LOCAL_WORLD_SIZE` and `GROUP_RANK` of each
/// process that it starts, and every other launcher can set them too.
///
/// ```
/// use ringmain::epochs::JobPlace;
/// use ringmain::shards::ShardOptions;
///
/// # fn place() -> ringmain::Result<()> {
/// // Of the environment, or rank 0 of 1 if no launcher has set it.
/// let place = JobPlace::find(None)?;
/// let options = ShardOptions::new().partition(place.rank(), place.world()).global_batch(1024);
/// # Ok(())
/// # }
/// ```
///
/// Two processes that are given the same rank outside a launcher cannot find out: each reads the same items.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct JobPlace {
    rank: u64,
    world: u64,
    node: u64,
    nodes: u64,
}

impl JobPlace {
    /// Returns the place that is given as `(rank, world)`, or else that of the environment, or else rank 0 of 1.
    /// If both exist and differ, it is an error that names both.
    pub fn find(given: Option<(u64, u64)>) -> Result<Self> {
        Self::find_with(given, |name| env::var_os(name).map(|value| value.to_string_lossy().into()))
    }

    /// Returns the place that a launcher has set in the environment, or `None` if there is none.
    pub fn from_env() -> Result<Option<Self>> {
        Self::from_variables(|name| env::var_os(name).map(|value| value.to_string_lossy().into()))
    }

    /// Returns the rank, from 0.
    #[must_use]
    pub fn rank(&self) -> u64 {
        self.rank
    }

    /// Returns the number of ranks.
    #[must_use]
    pub fn world(&self) -> u64 {
        self.world
    }

    /// Returns the number of this node, from 0.
    #[must_use]
    pub fn node(&self) -> u64 {
        self.node
    }

    /// Returns the number of nodes; 1 if it is not known, or if the nodes have different numbers of ranks.
    #[must_use]
    pub fn nodes(&self) -> u64 {
        self.nodes
    }

    fn find_with(
        given: Option<(u64, u64)>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self> {
        let Some((rank, world)) = given else {
            let alone = Self { rank: 0, world: 1, node: 0, nodes: 1 };
            return Ok(Self::from_variables(variable)?.unwrap_or(alone));
        };
        let value = format!("rank {rank} of {world}");
        if !(Partition { rank, world }).is_valid() {
            let reason = "ranks count from 0 to below the world";
            return Err(Error::invalid_option("partition", value, reason));
        }
        match Self::from_variables(variable)? {
            Some(found) if (found.rank, found.world) != (rank, world) => {
                let reason = format!(
                    "the environment variables RANK and WORLD_SIZE say rank {} of {}; give the same, or \
                     unset them",
                    found.rank, found.world
                );
                Err(Error::invalid_option("partition", value, reason))
            }
            Some(found) => Ok(found),
            None => Ok(Self { rank, world, node: 0, nodes: 1 }),
        }
    }

    fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Self>> {
        let number = |name: &'static str| number(name, variable(name));
        let (rank, world) = match (number("RANK")?, number("WORLD_SIZE")?) {
            (None, None) => return Ok(None),
            (Some(rank), Some(world)) => (rank, world),
            (Some(rank), None) => return Err(incomplete("RANK", rank, "WORLD_SIZE")),
            (None, Some(world)) => return Err(incomplete("WORLD_SIZE", world, "RANK")),
        };
        if !(Partition { rank, world }).is_valid() {
            let reason = format!(
                "the environment variable WORLD_SIZE says that there are {world} ranks, which count from 0"
            );
            return Err(Error::invalid_option("RANK", rank, reason));
        }
        let of_node = number("LOCAL_WORLD_SIZE")?.unwrap_or(world);
        if of_node == 0 || of_node > world {
            let reason =
                format!("the environment variable WORLD_SIZE says that there are {world} ranks");
            return Err(Error::invalid_option("LOCAL_WORLD_SIZE", of_node, reason));
        }
        let nodes = if world % of_node == 0 { world / of_node } else { 1 };
        let node = number("GROUP_RANK")?.unwrap_or(rank / of_node);
        Ok(Some(Self { rank, world, node, nodes }))
    }
}

fn number(name: &'static str, value: Option<String>) -> Result<Option<u64>> {
    let Some(value) = value.filter(|value| !value.is_empty()) else { return Ok(None) };
    value.parse().map(Some).map_err(|_| {
        let reason = "this environment variable must be a whole number; set it as torchrun does, or \
                      unset it";
        Error::invalid_option(name, format!("`{value}`"), reason)
    })
}

fn incomplete(name: &'static str, value: u64, missing: &str) -> Error {
    let reason = format!("the environment variable {missing} is not set; set both, or neither");
    Error::invalid_option(name, value, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(given: Option<(u64, u64)>, variables: &[(&str, &str)]) -> Result<JobPlace, String> {
        let variable = |name: &str| {
            let found = variables.iter().find(|(other, _)| *other == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        JobPlace::find_with(given, variable).map_err(|error| error.to_string())
    }

    #[test]
    fn the_place_is_given_or_in_the_environment() {
        let alone = JobPlace { rank: 0, world: 1, node: 0, nodes: 1 };
        assert_eq!(find(None, &[]), Ok(alone));
        assert_eq!(find(None, &[("RANK", ""), ("WORLD_SIZE", "")]), Ok(alone));
        assert_eq!(find(Some((2, 3)), &[]), Ok(JobPlace { rank: 2, world: 3, ..alone }));
        let torchrun = [("RANK", "5"), ("WORLD_SIZE", "8"), ("LOCAL_WORLD_SIZE", "4")];
        let second = JobPlace { rank: 5, world: 8, node: 1, nodes: 2 };
        assert_eq!(find(None, &torchrun), Ok(second));
        assert_eq!(find(Some((5, 8)), &torchrun), Ok(second));
        // The nodes have different numbers of ranks.
        let uneven =
            [("RANK", "5"), ("WORLD_SIZE", "6"), ("LOCAL_WORLD_SIZE", "4"), ("GROUP_RANK", "1")];
        assert_eq!(find(None, &uneven), Ok(JobPlace { rank: 5, world: 6, node: 1, nodes: 1 }));
    }

    #[test]
    fn a_contradiction_names_both_places() {
        let refused = |given, variables: &[(&str, &str)], parts: &[&str]| {
            let message = find(given, variables).unwrap_err();
            parts.iter().for_each(|part| assert!(message.contains(part), "{message}"));
        };
        let torchrun = [("RANK", "1"), ("WORLD_SIZE", "2")];
        refused(Some((0, 2)), &torchrun, &["rank 0 of 2", "RANK and WORLD_SIZE say rank 1 of 2"]);
        refused(Some((1, 3)), &torchrun, &["rank 1 of 3", "rank 1 of 2"]);
        refused(Some((3, 3)), &[], &["rank 3 of 3"]);
        refused(None, &[("RANK", "2"), ("WORLD_SIZE", "2")], &["`RANK`", "WORLD_SIZE", "2 ranks"]);
        refused(None, &[("RANK", "0")], &["`RANK`", "WORLD_SIZE is not set"]);
        refused(None, &[("WORLD_SIZE", "2")], &["`WORLD_SIZE`", "RANK is not set"]);
        refused(None, &[("RANK", "-1"), ("WORLD_SIZE", "2")], &["`RANK`", "`-1`", "whole number"]);
        let node = [torchrun[0], torchrun[1], ("LOCAL_WORLD_SIZE", "3")];
        refused(None, &node, &["`LOCAL_WORLD_SIZE`", "2 ranks"]);
    }
}
