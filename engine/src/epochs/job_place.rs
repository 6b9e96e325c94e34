//! The place of a process in a job of several processes.

use std::env;

use super::partition::Partition;
use crate::{Error, Result};

/// The place of a process in a job: its rank, the number of ranks, and its node.
///
/// torchrun sets the environment variables `RANK`, `WORLD_SIZE`, `LOCAL_RANK`, `LOCAL_WORLD_SIZE` and `GROUP_RANK`
/// of each process that it starts, and every other launcher can set them too.
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
/// Two processes that are given the same rank without a launcher do not notice it, and read the same items.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct JobPlace {
    rank: u64,
    world: u64,
    on_node: Option<PlaceOnNode>,
}

/// The place of a process on its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct PlaceOnNode {
    /// The number of ranks of the node.
    local_world: u64,
    local_rank: Option<u64>,
    node: Option<u64>,
}

impl JobPlace {
    /// Returns the place of a rank, whose node is not known.
    pub fn new(rank: u64, world: u64) -> Result<Self> {
        if (Partition { rank, world }).is_valid() {
            return Ok(Self { rank, world, on_node: None });
        }
        let reason = "ranks are numbered from 0 to `world - 1`";
        Err(Error::invalid_option("partition", rank_text(rank, world), reason))
    }

    /// Adds the node of this process, and which of the `local_world` ranks on that node it is, as a launcher
    /// other than torchrun knows them. All three count from 0.
    #[must_use]
    pub fn on_node(self, node: u64, local_rank: u64, local_world: u64) -> Self {
        let on_node = PlaceOnNode { local_world, local_rank: Some(local_rank), node: Some(node) };
        Self { on_node: Some(on_node), ..self }
    }

    /// Returns the place that is given as `(rank, world)`, or else that of the environment, or else rank 0 of 1.
    /// Fails with an error that names both if both exist and differ.
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

    /// Returns the number of this node, from 0; 0 if it is not known.
    #[must_use]
    pub fn node(&self) -> u64 {
        let Some(PlaceOnNode { local_world, node, .. }) = self.on_node else { return 0 };
        node.or_else(|| self.rank.checked_div(local_world)).unwrap_or(0)
    }

    /// Returns the number of nodes; 1 if the launcher has not said how many ranks a node has.
    ///
    /// Each rank computes the number from its own node. All ranks find the same number only if every node has
    /// equally many ranks, numbered node after node. A rank whose own place contradicts this returns an error. If
    /// nodes have different numbers of ranks, at least one rank does.
    pub fn nodes(&self) -> Result<u64> {
        let Some(PlaceOnNode { local_world, local_rank, node }) = self.on_node else {
            return Ok(1);
        };
        let nodes = self.world.checked_div(local_world).unwrap_or(0);
        let is_even = nodes * local_world == self.world
            && node == self.rank.checked_div(local_world)
            && local_rank == self.rank.checked_rem(local_world);
        if is_even {
            return Ok(nodes);
        }
        let (Some(local_rank), Some(node)) = (local_rank, node) else {
            let reason = "the environment has LOCAL_WORLD_SIZE, but not both LOCAL_RANK and GROUP_RANK, the \
                          number of the node; set all three for each process, or leave out `nodes`";
            return Err(Error::invalid_option("nodes", "found", reason));
        };
        let reason = format!(
            "{} has the local rank {local_rank} of {local_world} on node {node}, but all nodes must have \
             equally many ranks, numbered node after node; number them this way, or leave out `nodes`",
            rank_text(self.rank, self.world),
        );
        Err(Error::invalid_option("nodes", "found", reason))
    }

    pub(super) fn find_with(
        given: Option<(u64, u64)>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self> {
        let Some((rank, world)) = given else {
            let alone = Self { rank: 0, world: 1, on_node: None };
            return Ok(Self::from_variables(variable)?.unwrap_or(alone));
        };
        let place = Self::new(rank, world)?;
        match Self::from_variables(variable)? {
            Some(found) if (found.rank, found.world) != (rank, world) => {
                let reason = format!(
                    "the environment variables RANK and WORLD_SIZE say {}; give the same, or unset them",
                    rank_text(found.rank, found.world)
                );
                Err(Error::invalid_option("partition", rank_text(rank, world), reason))
            }
            Some(found) => Ok(found),
            None => Ok(place),
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
                "the environment variable WORLD_SIZE is {world}, and ranks are numbered from 0 to WORLD_SIZE - 1"
            );
            return Err(Error::invalid_option("RANK", rank, reason));
        }
        let (local_rank, node) = (number("LOCAL_RANK")?, number("GROUP_RANK")?);
        let on_node = match number("LOCAL_WORLD_SIZE")? {
            Some(local_world) if local_world == 0 || local_world > world => {
                let reason = format!(
                    "the environment variable WORLD_SIZE says that there are {world} ranks"
                );
                return Err(Error::invalid_option("LOCAL_WORLD_SIZE", local_world, reason));
            }
            Some(local_world) => Some(PlaceOnNode { local_world, local_rank, node }),
            None => None,
        };
        Ok(Some(Self { rank, world, on_node }))
    }
}

fn rank_text(rank: u64, world: u64) -> String {
    format!("rank {rank} of {world}")
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

    fn torchrun(
        rank: u64,
        world: u64,
        local_rank: u64,
        node: u64,
        local_world: u64,
    ) -> [(&'static str, u64); 5] {
        [
            ("RANK", rank),
            ("WORLD_SIZE", world),
            ("LOCAL_WORLD_SIZE", local_world),
            ("LOCAL_RANK", local_rank),
            ("GROUP_RANK", node),
        ]
    }

    fn find_numbers(
        given: Option<(u64, u64)>,
        variables: &[(&str, u64)],
    ) -> Result<JobPlace, String> {
        let text: Vec<_> =
            variables.iter().map(|(name, number)| (*name, number.to_string())).collect();
        let text: Vec<_> = text.iter().map(|(name, number)| (*name, number.as_str())).collect();
        find(given, &text)
    }

    #[test]
    fn the_place_is_given_or_in_the_environment() {
        let alone = JobPlace::new(0, 1).unwrap();
        assert_eq!(find(None, &[]), Ok(alone));
        assert_eq!((alone.node(), alone.nodes().unwrap()), (0, 1));
        assert_eq!(find(None, &[("RANK", ""), ("WORLD_SIZE", "")]), Ok(alone));
        assert_eq!(find(Some((2, 3)), &[]), Ok(JobPlace::new(2, 3).unwrap()));
        let torchrun = torchrun(5, 8, 1, 1, 4);
        let second = JobPlace::new(5, 8).unwrap().on_node(1, 1, 4);
        assert_eq!(find_numbers(None, &torchrun), Ok(second));
        assert_eq!(find_numbers(Some((5, 8)), &torchrun), Ok(second));
        assert_eq!((second.node(), second.nodes().unwrap()), (1, 2));
        // Without the number of the node, the ranks could not agree about the number of nodes.
        let unknown = find_numbers(None, &torchrun[..3]).unwrap();
        assert_eq!(unknown.node(), 1);
        let message = unknown.nodes().unwrap_err().to_string();
        assert!(message.contains("not both LOCAL_RANK and GROUP_RANK"), "{message}");
    }

    /// With nodes of 2 and 1 ranks, ranks 0 and 1 found 1 node and rank 2 found 3, and they divided the batches in
    /// different ways.
    #[test]
    fn the_ranks_of_a_job_never_disagree_about_the_nodes() {
        let nodes_of = |ranks: &[u64]| -> Vec<Result<u64, String>> {
            let world = ranks.iter().sum();
            let all = ranks.iter().enumerate().flat_map(|(node, local_world)| {
                let first: u64 = ranks[..node].iter().sum();
                (0..*local_world)
                    .map(move |local| (first + local, local, node as u64, *local_world))
            });
            let nodes = all.map(|(rank, local, node, local_world)| {
                let found = find_numbers(None, &torchrun(rank, world, local, node, local_world));
                found?.nodes().map_err(|error| error.to_string())
            });
            nodes.collect()
        };
        for ranks in [vec![1], vec![4], vec![2, 2], vec![1, 1, 1], vec![3, 3, 3]] {
            let expected = vec![Ok(ranks.len() as u64); ranks.iter().sum::<u64>() as usize];
            assert_eq!(nodes_of(&ranks), expected);
        }
        for ranks in
            [vec![2, 1], vec![4, 2], vec![2, 1, 3], vec![1, 2], vec![1, 1, 2], vec![4, 2, 2]]
        {
            let found = nodes_of(&ranks);
            let message = found.iter().find_map(|nodes| nodes.as_ref().err());
            assert!(message.unwrap().contains("equally many ranks"), "{ranks:?}: {found:?}");
        }
        let message = nodes_of(&[2, 1])[2].clone().unwrap_err();
        assert!(message.contains("rank 2 of 3 has the local rank 0 of 1 on node 1"), "{message}");
        // A launcher that numbers the ranks in turn.
        let turns = JobPlace::new(1, 4).unwrap().on_node(1, 0, 2);
        assert!(turns.nodes().is_err() && turns.node() == 1);
        assert!(JobPlace::new(0, 1).unwrap().on_node(0, 0, 0).nodes().is_err());
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
        refused(None, &[("RANK", "2"), ("WORLD_SIZE", "2")], &["`RANK`", "WORLD_SIZE is 2"]);
        refused(None, &[("RANK", "0")], &["`RANK`", "WORLD_SIZE is not set"]);
        refused(None, &[("WORLD_SIZE", "2")], &["`WORLD_SIZE`", "RANK is not set"]);
        refused(None, &[("RANK", "-1"), ("WORLD_SIZE", "2")], &["`RANK`", "`-1`", "whole number"]);
        let node = [torchrun[0], torchrun[1], ("LOCAL_WORLD_SIZE", "3")];
        refused(None, &node, &["`LOCAL_WORLD_SIZE`", "2 ranks"]);
    }
}
