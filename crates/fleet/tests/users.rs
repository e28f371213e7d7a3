//! etcd with certificates and users: what a base may do there, and what becomes of one that is revoked.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on says where")]

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;

use common::{Agent, Etcd, block_on, join, name, until};
use etcd_client::{Certificate, Client, ConnectOptions, TlsOptions};
use lasthop_fleet::commands::{Fleet, MobileOptions, Where};
use lasthop_fleet::config::FleetFile;
use lasthop_fleet::store::Store;

const PASSWORD: &str = "correct horse";

fn openssl(folder: &Path, arguments: &str) {
    let output = Command::new("openssl")
        .args(arguments.split_whitespace())
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A certificate for loopback, and who made it.
fn certificates(folder: &Path) {
    let ec = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    openssl(folder, &format!("req -x509 {ec} -keyout ca.key -out ca.pem -days 2 -subj /CN=test"));
    openssl(folder, &format!("req {ec} -keyout etcd.key -out etcd.csr -subj /CN=etcd"));
    fs::write(folder.join("ext"), "subjectAltName=IP:127.0.0.1\n").unwrap();
    openssl(
        folder,
        "x509 -req -in etcd.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile ext \
         -out etcd.pem",
    );
}

async fn administrator(etcd: &Etcd, ca: &str, user: bool) -> Client {
    let tls = TlsOptions::new().ca_certificate(Certificate::from_pem(ca));
    let mut options = ConnectOptions::new().with_tls(tls);
    if user {
        options = options.with_user("root", PASSWORD);
    }
    Client::connect(&etcd.endpoints, Some(options)).await.unwrap()
}

#[test]
fn a_base_is_a_user_who_may_do_what_a_base_does() {
    if !lasthop_testing::is_installed("openssl") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    certificates(folder.path());
    let file = |name: &str| folder.path().join(name);
    let shown = |name: &str| file(name).display().to_string();
    let more =
        ["--cert-file".to_owned(), shown("etcd.pem"), "--key-file".to_owned(), shown("etcd.key")];
    let Some(etcd) = Etcd::start_with(1, "https", &more) else { return };
    let ca = fs::read_to_string(file("ca.pem")).unwrap();
    fs::write(file("password"), format!("{PASSWORD}\n")).unwrap();
    block_on(async {
        let mut root = administrator(&etcd, &ca, false).await;
        let start = std::time::Instant::now();
        while root.user_add("root", PASSWORD, None).await.is_err() {
            assert!(start.elapsed() < common::PATIENCE);
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        root.role_add("root").await.unwrap();
        root.user_grant_role("root", "root").await.unwrap();
        root.auth_enable().await.unwrap();

        let at = Where {
            cacert: Some(file("ca.pem")),
            user: Some("root".to_owned()),
            password_file: Some(file("password")),
            ..etcd.at()
        };
        let fleet = etcd.fleet_at(at).await;
        let bases = etcd.folder("bases");
        let folders = [join(&fleet, 0, &bases).await, join(&fleet, 1, &bases).await];
        let agents = folders.each_ref().map(|folder| Agent::start(folder));
        until("they know each other", || agents.iter().all(|a| a.has("[[peers]]"))).await;

        // What the base may not do.
        let file = FleetFile::load(&folders[1].join("fleet.toml")).unwrap();
        assert!(file.user.as_deref().is_some_and(|user| user.starts_with("lasthop-trains-")));
        let base = Fleet::open(file.clone()).await.unwrap();
        let options = MobileOptions {
            name: name("m1"),
            address: Vec::new(),
            network: Vec::new(),
            tun: Vec::new(),
            acknowledge: Default::default(),
            key: None,
            folder: etcd.folder("mobiles"),
        };
        for error in [
            base.add_mobile(&options).await.unwrap_err(),
            base.rotate(true).await.unwrap_err(),
            base.revoke("b0", Default::default()).await.unwrap_err(),
            base.token(std::time::Duration::from_secs(9)).await.unwrap_err(),
        ] {
            assert!(error.to_string().contains("permission denied"), "{error}");
        }
        fleet.add_mobile(&options).await.unwrap();
        until("the mobile", || agents.iter().all(|agent| agent.has("# m1"))).await;

        // Whoever is revoked is nobody in etcd either.
        fleet.revoke("b1", Default::default()).await.unwrap();
        until("it is gone", || !agents[0].has("b1") && agents[0].has("tickets-2.key")).await;
        let access = file.access().unwrap();
        let error = Store::connect(&access, &file.name, 0).await.unwrap_err();
        assert!(error.to_string().contains("authentication failed"), "{error}");

        // Nobody who does not know the certificate's maker speaks to etcd, and users of tokens that were
        // not used are removed.
        let stranger = FleetFile { cacert: None, ..file.clone() }.access().unwrap();
        Store::connect(&stranger, &file.name, 0).await.unwrap_err();
        fleet.token(std::time::Duration::from_secs(1)).await.unwrap();
        tokio::time::sleep(std::time::Duration::from_millis(3500)).await;
        fleet.token(std::time::Duration::from_secs(60)).await.unwrap();
        let mut root = administrator(&etcd, &ca, true).await;
        let users = root.user_list().await.unwrap();
        let of_bases = users.users().iter().filter(|user| user.starts_with("lasthop-"));
        assert_eq!(of_bases.count(), 2, "{:?}", users.users());
        for agent in agents {
            agent.stop().await;
        }
    });
}
