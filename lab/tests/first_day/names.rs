//! Names with several addresses, of programs without proxy settings.

use lasthop_kernel::netns::Netns;

use crate::programs::pair;
use crate::stage::{SERVER, Stage};

/// Programs that choose among a name's addresses themselves.
fn fetches(stage: &Stage, host: &Netns, name: &str) {
    let python = format!(
        "python3 -c 'import urllib.request as u; \
         print(u.urlopen(\"http://{name}/\", timeout=60).read().decode(), end=\"\")'"
    );
    let curl = format!("curl -sS --max-time 60 http://{name}/");
    for line in [curl, format!("wget -q -T 60 -O - http://{name}/"), python] {
        assert_eq!(stage.run(host, &line), "there", "`{line}`");
    }
}

#[test]
fn a_name_of_both_families_is_reached_although_the_base_has_one() {
    let Some(stage) = Stage::new() else { return };
    let _web = stage.web();
    stage.lab.base.sysctl("ipv6.conf.wired0.disable_ipv6", "1").unwrap();
    let _pair = pair(&stage, "", "--transparent");
    fetches(&stage, &stage.lab.mobile, "example.org");
}

#[test]
fn a_name_with_a_dead_address_is_reached_by_the_other() {
    let Some(stage) = Stage::new() else { return };
    let [v4, v6] = SERVER;
    // Nobody listens at the first, and the second is nobody's.
    stage.lab.fixed.ip("addr add 10.0.1.3/24 dev wired0\n").unwrap();
    stage.names(&format!(
        "10.0.2.1 base.example.net\n10.0.1.3 refused.example.org\n{v4} refused.example.org\n\
         10.0.1.9 nobody.example.org\n{v4} nobody.example.org\n{v6} nobody.example.org\n"
    ));
    let _web = stage.web_at(v4);
    let _pair = pair(&stage, "", "--transparent");
    for name in ["refused.example.org", "nobody.example.org"] {
        let socks = "--proxy socks5h://127.0.0.1:1080";
        let line = format!("curl -sS --max-time 60 {socks} http://{name}/");
        assert_eq!(stage.run(&stage.lab.mobile, &line), "there", "by SOCKS");
        fetches(&stage, &stage.lab.mobile, name);
    }
}
