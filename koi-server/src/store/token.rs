//! Bearer tokens, as keyed digests. The digest is the caller's work.

use sqlx::Row;

use koi_core::ids::HostId;
use koi_core::time::UtcMicros;

use super::{Store, StoreError};

/// A token to be remembered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewToken {
    /// Keyed digest of the token.
    pub hash: Vec<u8>,
    /// What it entitles to.
    pub role: String,
    /// Whose it is.
    pub identity: String,
    /// The host of an agent's token.
    pub host: Option<HostId>,
    /// When it was made.
    pub created_at: UtcMicros,
}

/// What a token entitles to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenRecord {
    /// What it entitles to.
    pub role: String,
    /// Whose it is.
    pub identity: String,
    /// The host of an agent's token.
    pub host: Option<HostId>,
}

impl Store {
    /// Remembers a token; one that is known gets the new role, identity and host.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn token_insert(&self, token: &NewToken) -> Result<(), StoreError> {
        let sql = "INSERT INTO token (token_hash, role, identity, host_id, created_at)
                   VALUES ($1, $2, $3, $4, $5)
                   ON CONFLICT (token_hash) DO UPDATE SET
                       role = excluded.role, identity = excluded.identity,
                       host_id = excluded.host_id";
        sqlx::query(sql)
            .bind(&token.hash)
            .bind(&token.role)
            .bind(&token.identity)
            .bind(token.host.as_ref().map(HostId::as_str))
            .bind(token.created_at.0)
            .execute(&self.shared)
            .await?;
        Ok(())
    }

    /// What the token with this digest entitles to.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn token_lookup(&self, hash: &[u8]) -> Result<Option<TokenRecord>, StoreError> {
        let sql = "SELECT role, identity, host_id FROM token WHERE token_hash = $1";
        let row = sqlx::query(sql)
            .bind(hash)
            .fetch_optional(&self.shared)
            .await?;
        let Some(row) = row else { return Ok(None) };
        let host: Option<String> = row.try_get(2)?;
        // A host id that is not one entitles to nothing.
        let Ok(host) = host.map(|h| h.parse()).transpose() else {
            return Ok(None);
        };
        Ok(Some(TokenRecord {
            role: row.try_get(0)?,
            identity: row.try_get(1)?,
            host,
        }))
    }

    /// Forgets a token; true when there was one.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn token_revoke(&self, hash: &[u8]) -> Result<bool, StoreError> {
        let query = sqlx::query("DELETE FROM token WHERE token_hash = $1").bind(hash);
        Ok(query.execute(&self.shared).await?.rows_affected() > 0)
    }
}
