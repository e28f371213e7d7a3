//! Users of etcd, where it has them: one for each base, who may do what a base does.

use etcd_client::{Error, Permission};

use super::{Store, StoreError, said};
use crate::records::Name;
use crate::token::Secret;

/// What a base may write; it may read everything of its fleet.
const WRITTEN_BY_BASES: [&str; 5] = ["alive/", "bases/", "draining/", "held/", "tokens/"];

/// The role of a fleet's bases.
fn role(fleet: &Name) -> String {
    format!("lasthop-{fleet}")
}

/// The user who comes with a token.
pub(crate) fn user(fleet: &Name, token: &Name) -> String {
    format!("lasthop-{fleet}-{token}")
}

fn exists(error: &Error) -> bool {
    said(error).contains("already exists")
}

impl Store {
    /// Makes the role of the fleet's bases, or completes it.
    pub(crate) async fn make_role(&self, fleet: &Name) -> Result<(), StoreError> {
        let role = role(fleet);
        let mut auth = self.client.auth_client();
        let made = self.within("making a role", async {
            match auth.role_add(role.as_str()).await {
                Err(error) if !exists(&error) => Err(error),
                _ => Ok(()),
            }
        });
        made.await?;
        let reads = std::iter::once(Permission::read(self.prefix.as_str()));
        let writes = WRITTEN_BY_BASES.iter().map(|path| Permission::read_write(self.key(path)));
        for permission in reads.chain(writes) {
            let granted = auth.role_grant_permission(role.as_str(), permission.with_prefix());
            self.within("granting what bases may do", granted).await?;
        }
        Ok(())
    }

    /// Makes the user of a base.
    pub(crate) async fn add_user(
        &self,
        fleet: &Name,
        user: &str,
        password: &Secret,
    ) -> Result<(), StoreError> {
        let mut auth = self.client.auth_client();
        self.within("making a user", auth.user_add(user, password.as_str(), None)).await?;
        self.within("giving a user its role", auth.user_grant_role(user, role(fleet))).await?;
        Ok(())
    }

    /// Removes the user of a base.
    pub(crate) async fn remove_user(&self, user: &str) -> Result<(), StoreError> {
        let mut auth = self.client.auth_client();
        let removed = self.within("removing a user", async {
            match auth.user_delete(user).await {
                Err(error) if !said(&error).contains("not found") => Err(error),
                _ => Ok(()),
            }
        });
        removed.await
    }

    /// The users that came with tokens of the fleet, and of no other whose name begins alike.
    pub(crate) async fn users(&self, fleet: &Name) -> Result<Vec<String>, StoreError> {
        let mut auth = self.client.auth_client();
        let all = self.within("listing users", auth.user_list()).await?;
        let start = format!("{}-", role(fleet));
        let own = |user: &&String| {
            let id = user.strip_prefix(&start);
            id.is_some_and(|id| !id.is_empty() && id.bytes().all(|c| c.is_ascii_hexdigit()))
        };
        Ok(all.users().iter().filter(own).cloned().collect())
    }
}
