//! The damage that a file can have, by its format.

#[cfg(feature = "beton")]
use crate::beton::BetonDamage;
use crate::shards::ShardDamage;
#[cfg(feature = "safetensors")]
use crate::weights::WeightsDamage;

/// The damage of a file, by its format.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Damage {
    /// A `.npy` file, or a file of exca, is damaged.
    #[error("{reason}")]
    Array {
        /// The reason.
        reason: String,
    },
    /// A shard is damaged.
    #[error("{0}")]
    Shard(ShardDamage),
    /// A `.beton` dataset is damaged.
    #[cfg(feature = "beton")]
    #[error("{0}")]
    Beton(BetonDamage),
    /// A safetensors file, or the index of a model, is damaged.
    #[cfg(feature = "safetensors")]
    #[error("{0}")]
    Weights(WeightsDamage),
}

impl From<ShardDamage> for Damage {
    fn from(damage: ShardDamage) -> Self {
        Self::Shard(damage)
    }
}

#[cfg(feature = "beton")]
impl From<BetonDamage> for Damage {
    fn from(damage: BetonDamage) -> Self {
        Self::Beton(damage)
    }
}

#[cfg(feature = "safetensors")]
impl From<WeightsDamage> for Damage {
    fn from(damage: WeightsDamage) -> Self {
        Self::Weights(damage)
    }
}
