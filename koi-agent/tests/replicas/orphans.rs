//! Engines whose folder was removed while neither shim nor agent lived.

use std::collections::BTreeSet;
use std::time::Duration;

use koi_agent::supervise::launch::launch;
use koi_agent::supervise::{Supervision, orphans};
use koi_shim::process::is_alive;

use super::{Host, kill9};

#[tokio::test]
async fn hazard_d3_an_engine_without_a_folder_is_stopped_and_no_other() {
    let host = Host::new();
    let script = "sleep 1000 & exec sleep 1001";
    let kept = launch(&host.0, &host.spec(1, script)).await.unwrap();
    let lost = launch(&host.0, &host.spec(0, script)).await.unwrap();
    assert_eq!(orphans::find(&host.0).unwrap(), []);
    kill9(kept.identity.shim).await;
    kill9(lost.identity.shim).await;
    std::fs::remove_dir_all(&lost.state_dir).unwrap();

    let found = orphans::find(&host.0).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].replica, lost.meta.replica_id);
    assert_eq!(found[0].nonce, lost.meta.nonce);
    // Another cluster's, and another host's, are not looked at.
    for strange in [
        Supervision {
            cluster_id: Some("another".to_owned()),
            ..host.0.clone()
        },
        Supervision {
            state_root: host.0.state_root.join("elsewhere"),
            ..host.0.clone()
        },
    ] {
        assert_eq!(orphans::stop(&strange, None).await.unwrap(), 0);
    }
    let somebody = BTreeSet::from([kept.identity.engine.pid]);
    assert_eq!(orphans::stop(&host.0, Some(&somebody)).await.unwrap(), 0);
    assert!(is_alive(lost.identity.engine));

    let holders = BTreeSet::from([lost.identity.engine.pid]);
    assert_eq!(orphans::stop(&host.0, Some(&holders)).await.unwrap(), 1);
    assert!(!is_alive(lost.identity.engine));
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(orphans::find(&host.0).unwrap(), []);
    assert!(is_alive(kept.identity.engine));
}
