//! What manual pages say beyond the command's own help.

/// The further sections of a page.
#[derive(Default)]
pub(super) struct Page {
    /// Paths, and what is there.
    pub(super) files: &'static [(&'static str, &'static str)],
    /// Statuses other than 0 and 1, and what they say.
    pub(super) exit: &'static [(&'static str, &'static str)],
    /// What one may want, and the command for it.
    pub(super) examples: &'static [(&'static str, &'static str)],
    /// Other pages, with their section unless it is 1.
    pub(super) see_also: &'static [&'static str],
}

/// Names of pages that have more than their help.
#[cfg(test)]
pub(super) const NAMED: [&str; 15] = [
    "lasthop",
    "lasthop-base",
    "lasthop-mobile",
    "lasthop-agent",
    "lasthop-exec",
    "lasthop-keygen",
    "lasthop-status",
    "lasthop-top",
    "lasthop-ui",
    "lasthop-link",
    "lasthop-handoff",
    "lasthop-priority",
    "lasthop-helper",
    "lasthop-radio",
    "lasthop-reproduce",
];

/// Those of the page called `name`; none, if it has no more than its help.
pub(super) fn page(name: &str) -> Page {
    match name {
        "lasthop" => lasthop(),
        "lasthop-base" => base(),
        "lasthop-mobile" => mobile(),
        "lasthop-agent" => agent(),
        "lasthop-exec" => exec(),
        "lasthop-keygen" => keygen(),
        "lasthop-status" => Page { files: SOCKETS, see_also: &["lasthop-top"], ..Page::default() },
        "lasthop-top" | "lasthop-ui" => {
            Page { files: SOCKETS, see_also: &["lasthop-status"], ..Page::default() }
        }
        "lasthop-link" => link(),
        "lasthop-handoff" => Page {
            examples: &[(
                "Move all connections to the base that is called b2, and say how long they paused:",
                "lasthop handoff --to b2",
            )],
            see_also: &["lasthop-link"],
            ..Page::default()
        },
        "lasthop-priority" => priority(),
        "lasthop-helper" => helper(),
        "lasthop-radio" => Page { see_also: &["ip-netns(8)"], ..Page::default() },
        "lasthop-reproduce" => reproduce(),
        _ => Page::default(),
    }
}

/// Where running processes can be asked.
const SOCKETS: &[(&str, &str)] = &[
    (
        "$XDG_RUNTIME_DIR/lasthop/{base,mobile,agent}.sock",
        "Where a process can be asked that an ordinary user started.",
    ),
    (
        "/run/lasthop/{base,mobile,agent}.sock",
        "Where one can be asked that runs as a service, by root.",
    ),
];

fn lasthop() -> Page {
    Page {
        files: &[
            ("/etc/lasthop/", "Configuration and keys of services."),
            ("/usr/share/doc/lasthop/examples/", "Configurations to begin with."),
        ],
        exit: &[
            ("1", "What was asked for failed; one line on standard error says why."),
            ("2", "The command line is not understood."),
        ],
        examples: &[
            (
                "At a base station: make a key, whose public half is printed, and serve a mobile.",
                "lasthop keygen --out base.key\nlasthop base --key base.key --allow MOBILE",
            ),
            (
                "At the mobile: the same, and then use it.",
                "lasthop keygen --out mobile.key\n\
                 lasthop mobile --key mobile.key --base base.example.net:4433 --base-key BASE\n\
                 lasthop exec -- curl -O http://example.org/map.tar",
            ),
        ],
        see_also: &[],
    }
}

fn base() -> Page {
    Page {
        files: &[
            ("/etc/lasthop/base.toml", "The configuration of the service lasthop-base."),
            ("/run/lasthop/base.sock", "Where the service can be asked."),
        ],
        examples: &[
            ("Serve one mobile:", "lasthop base --key base.key --allow MOBILE"),
            (
                "Let fixed hosts reach its web server at port 8080 of the base:",
                "lasthop base --key base.key --allow MOBILE --publish '0.0.0.0:8080 -> MOBILE:80'",
            ),
        ],
        see_also: &["lasthop-mobile", "lasthop-keygen", "lasthop-helper", "lasthop-status"],
        ..Page::default()
    }
}

fn mobile() -> Page {
    Page {
        files: &[
            ("/etc/lasthop/mobile.toml", "The configuration of the service lasthop-mobile."),
            ("/run/lasthop/mobile.sock", "Where the service can be asked."),
        ],
        examples: &[
            (
                "Carry what comes to the proxy at 127.0.0.1:1080:",
                "lasthop mobile --key mobile.key --base base.example.net:4433 --base-key BASE",
            ),
            (
                "Carry all TCP of this host and of the network behind lan0 too, as root:",
                "lasthop mobile --config mobile.toml --transparent=host,lan0",
            ),
        ],
        see_also: &["lasthop-exec", "lasthop-base", "lasthop-link", "lasthop-priority", "nft(8)"],
        ..Page::default()
    }
}

fn agent() -> Page {
    Page {
        files: &[
            (
                "/etc/lasthop/agent-NAME.toml",
                "The configuration of the service lasthop-agent@NAME.",
            ),
            ("/run/lasthop/agent.sock", "Where it can be asked."),
        ],
        examples: &[(
            "Between a wired network at eth0 and a radio at wlan0, repair losses on the radio:",
            "lasthop agent snoop --fixed-if eth0 --mobile-if wlan0 --bridge br0",
        )],
        see_also: &["lasthop-link", "lasthop-priority", "bridge(8)", "nft(8)"],
        ..Page::default()
    }
}

fn exec() -> Page {
    Page {
        files: &[(
            "/usr/lib/lasthop/liblasthop_preload.so",
            "The library whose connect(2) a program gets.",
        )],
        exit: &[
            ("126", "The program cannot be run."),
            ("127", "The program is not found."),
            ("other", "The program's own."),
        ],
        examples: &[
            ("One program:", "lasthop exec -- curl -O http://example.org/map.tar"),
            ("A shell, and all that is started from it:", "lasthop exec -- bash"),
        ],
        see_also: &["lasthop-mobile", "ld.so(8)"],
    }
}

fn keygen() -> Page {
    Page {
        examples: &[
            ("A key for a base, whose public half is printed:", "lasthop keygen --out base.key"),
            ("That public half once more:", "lasthop keygen --public base.key"),
        ],
        see_also: &["lasthop-base", "lasthop-mobile"],
        ..Page::default()
    }
}

fn link() -> Page {
    Page {
        examples: &[
            (
                "The mobile will be near the base b2 in 300 ms:",
                "lasthop link imminent --to b2 --in 300ms",
            ),
            ("A modem has lost its network, and is back:", "lasthop link down\nlasthop link up"),
        ],
        see_also: &["lasthop-handoff", "lasthop-mobile", "lasthop-agent"],
        ..Page::default()
    }
}

fn priority() -> Page {
    Page {
        examples: &[(
            "Calls matter three times as much as what else there is:",
            "lasthop priority set baresip 3",
        )],
        see_also: &["lasthop-top", "lasthop-mobile", "lasthop-agent"],
        ..Page::default()
    }
}

fn reproduce() -> Page {
    Page {
        exit: &[("3", "All was run, and a criterion is not met: a result like any other.")],
        examples: &[
            ("One paper, with its figures:", "lasthop reproduce obtcp-2010 --report obtcp.html"),
            (
                "What agrees and what does not, for a program:",
                "lasthop reproduce mhp-srp-1994 --json | jq 'select(.kind == \"criterion\")'",
            ),
        ],
        see_also: &["lasthop-sim", "lasthop-cost"],
        ..Page::default()
    }
}

fn helper() -> Page {
    Page {
        files: &[("/run/lasthop/helper.sock", "Where the service lasthop-helper serves bases.")],
        examples: &[(
            "For bases of the user 994, and for one mobile:",
            "lasthop helper --socket /run/lasthop/helper.sock --allow-uid 994 --address 10.9.0.7",
        )],
        see_also: &["lasthop-base", "capabilities(7)"],
        ..Page::default()
    }
}
