//! A base without privilege, whose helper is killed and started again.

use std::fs;

use crate::stage::{Stage, says, text, until};

/// The mobile's own address, which no host has.
const OWN: &str = "10.9.0.7";

#[test]
fn a_helper_that_is_killed_and_started_again_is_found_again() {
    let Some(stage) = Stage::new() else { return };
    let mut web = stage.web_at("0.0.0.0");
    let (base, mobile) = (&stage.lab.base, &stage.lab.mobile);
    let [at_base, at_mobile, at_other] = ["base", "mobile", "other"].map(|name| stage.keygen(name));
    let config = format!(
        "key = \"base.key\"\nallow = [\"{at_mobile}\"]\n[handoff]\nmode = \"migrate\"\n\
         listen = [\"[::]:4434\"]\nroute = \"none\"\nhelper = \"/run/helper.sock\"\n\
         [[peers]]\nname = \"other\"\nkey = \"{at_other}\"\naddress = \"10.0.1.9:4434\"\n\
         [[mobiles]]\nkey = \"{at_mobile}\"\naddress = [\"{OWN}\"]\n"
    );
    fs::write(stage.path("base.toml"), config).unwrap();
    let help = format!("lasthop helper --socket /run/helper.sock --address {OWN}");
    let mut helper = stage.serve(base, &help, "serving");
    let unprivileged = "setpriv --bounding-set -all --inh-caps -all";
    let serve = format!("{unprivileged} lasthop base --config base.toml");
    let mut serving = stage.serve(base, &serve, "serving");
    let line = format!(
        "lasthop mobile --key mobile.key --base base.example.net:4433 --base-key {at_base}"
    );
    let _mobile = stage.serve(mobile, &line, "serving SOCKS5");
    let fetch = "curl -sS --max-time 20 --proxy socks5h://127.0.0.1:1080 http://example.org/";
    assert_eq!(stage.run(mobile, fetch), "there");
    says(&mut web, OWN);

    helper.kill();
    says(&mut serving, "helper");
    let _helper = stage.serve(base, &help, "serving");
    let seen = |web: &str| web.matches(OWN).count();
    let before = seen(&web.said());
    until("connections leave from the mobile's own address again", || {
        let output = stage.shell(mobile, fetch).output().unwrap();
        text(&output.stdout) == "there" && seen(&web.said()) > before
    });
    serving.check().unwrap();
}
