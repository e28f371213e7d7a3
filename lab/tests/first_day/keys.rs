//! A base that is not reached for one reason or another.

use crate::stage::{Stage, says};

/// What the mobile says must tell the reasons apart, and the base's log must name the key.
#[test]
fn a_wrong_key_a_stranger_a_wrong_port_and_no_base_are_told_apart() {
    let Some(stage) = Stage::new() else { return };
    let (base, mobile) = (&stage.lab.base, &stage.lab.mobile);
    let [at_base, at_mobile, other] = ["base", "mobile", "other"].map(|name| stage.keygen(name));
    let serve = format!("lasthop base --key base.key --allow {at_mobile}");
    let mut serving = stage.serve(base, &serve, "serving");
    let tries = |own: &str, to: &str, port: u16, said: &str| {
        let line = format!(
            "lasthop mobile --key {own}.key --base base.example.net:{port} --base-key {to}"
        );
        let mut trying = stage.start(mobile, &line);
        says(&mut trying, said);
        assert!(trying.stop());
    };
    tries("mobile", &other, 4433, "nothing comes back from 10.0.2.1:4433");
    says(&mut serving, &format!("the mobile's `base_key` is not {at_base}"));
    tries("other", &at_base, 4433, "nothing comes back from 10.0.2.1:4433");
    says(&mut serving, &format!("the mobile {other} from 10.0.2.2"));
    tries("mobile", &at_base, 4434, "nobody listens at this port (10.0.2.1:4434)");
    assert!(serving.stop());
    tries("mobile", &at_base, 4433, "nobody listens at this port (10.0.2.1:4433)");
    base.ip("link set radio0 down\n").unwrap();
    tries("mobile", &at_base, 4433, "nothing comes back from 10.0.2.1:4433");
}
