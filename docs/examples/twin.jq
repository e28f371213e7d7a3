# What `lasthop-bench twin --json` prints, as a table: for each sender the goodput in the simulator and on
# kernels in Mbit/s, and the gain over `none` in each. A gain that neither helps nor harms is in brackets.
#
#     lasthop-bench twin --json | jq -rs -f docs/examples/twin.jq

def round2: if . == null then "-" else . * 100 | round / 100 | tostring end;
def gain(value; effect):
    if value == null then "-" elif effect == "same" then "(\(value | round2))" else value | round2 end;
def half:
    if . == null then "- | - | - | -"
    else "\(.sim_mbps | round2) | \(.kernel_mbps | round2) | \(gain(.sim_gain; .sim)) | "
        + gain(.kernel_gain; .kernel)
    end;

[.[] | select(has("sender"))]
| reduce .[] as $row ({names: [], rows: {}};
    ($row.cell + " | `" + $row.peer + "`") as $name
    | .names += (if .rows | has($name) then [] else [$name] end)
    | .rows[$name][$row.sender] = $row)
| "| condition | scheme | reno: sim | kernel | gain sim | kernel | cubic: sim | kernel | gain sim | kernel |",
  "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
  (.rows as $rows | .names[] | "| \(.) | \($rows[.].reno | half) | \($rows[.].cubic | half) |")
