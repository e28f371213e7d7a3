# Makes a table of what `lasthop sim docs/examples/sim-bond.toml --json=runs` prints: for each pair of links, by
# its seed, what was drawn of each (rate, delay, loss, fades), the goodput of the bond in Mbit/s, its share of the
# sum of the links' limits, and its share of the better link alone. The worst pairs of either share come last.
#
#     lasthop sim docs/examples/sim-bond.toml --json=runs | jq -rs -f docs/examples/bond.jq

def rounded($digits): . * pow(10; $digits) | round / pow(10; $digits);
def tidy:
    if test("^[0-9]+ns$") then (.[:-2] | tonumber / 1e6 | rounded(0) | tostring) + " ms"
    elif test("^[0-9]+bit/s$") then (.[:-5] | tonumber / 1e6 | rounded(1) | tostring) + " Mbit/s"
    elif test("^[0-9.]+%$") then (.[:-1] | tonumber | rounded(1) | tostring) + "%"
    else . end;
def link($name): [.drawn | to_entries[] | select(.key | startswith("link.\($name).")) | .value | tidy] | join(", ");
def median: sort | if length % 2 == 1 then .[length / 2 | floor] else (.[length / 2 - 1] + .[length / 2]) / 2 end;
def line: [.seed, .dish, .modem, (.mbps | rounded(2)), (.sum | rounded(3)), (.best | rounded(3))] | map(tostring) | join(" | ") | "| \(.) |";

group_by(.seed) | map(
    (map({(.parameters.over): .metrics}) | add) as $over
    | ([$over.dish, $over.modem] | map(.["download.goodput_bps"]) | max) as $best
    | $over.both["download.goodput_bps"] as $bond
    | {
        seed: .[0].seed, dish: (.[0] | link("dish")), modem: (.[0] | link("modem")),
        mbps: ($bond / 1e6), sum: $over.both["download.share_of_limit"], best: ($bond / $best)
    }) as $pairs
| "| seed | dish | modem | Mbit/s | of the sum | of the better link |",
  "| --- | --- | --- | --- | --- | --- |",
  ($pairs[] | line),
  "",
  "\($pairs | length) pairs: of the sum, median \($pairs | map(.sum) | median | rounded(3)), least \($pairs | map(.sum) | min | rounded(3)); of the better link, median \($pairs | map(.best) | median | rounded(3)), least \($pairs | map(.best) | min | rounded(3)), below 0.98 \([$pairs[] | select(.best < 0.98)] | length)",
  "", "least of the sum:", ($pairs | sort_by(.sum) | .[:5][] | line),
  "", "least of the better link:", ($pairs | sort_by(.best) | .[:5][] | line)
