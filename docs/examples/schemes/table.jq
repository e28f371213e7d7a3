# Makes tables of what `lasthop sim --json` prints. Run it with `jq -rs -f`, with
#   --arg across AXIS     the axis that becomes columns; `scheme` if not said
#   --arg by AXIS         an axis of which each value has a table of its own; none if not said
#   --arg metric "A B"    metrics, each with columns of its own; `download.goodput_bps` if not said
# Rates are in kbit/s, times in ms and losses in %. A value is a mean over runs and half of its 95 % interval.

def pad($n): . + (" " * ([$n - length, 0] | max));
def lead($n): (" " * ([$n - length, 0] | max)) + .;
def distinct: reduce .[] as $x ([]; if any(.[]; . == $x) then . else . + [$x] end);
def name: if type == "array" then map(tostring) | join("+") else tostring end;
def short: split(".") | .[-2:] | join(".");
def rounded($digits): . * pow(10; $digits) | round / pow(10; $digits) | tostring;
def unit:
  if endswith("_bps") then [0.001, 0]
  elif endswith("_s") then [1000, 1]
  elif endswith("loss") then [100, 2]
  else [1, 1]
  end;
def shown($metric):
  if . == null or .mean == null then "-"
  else ($metric | unit) as [$factor, $digits]
  | (.mean * $factor | rounded($digits))
    + (if .hi == null then "" else " ±" + ((.hi - .lo) / 2 * $factor | rounded($digits)) end)
  end;

def table($title; $across; $metrics):
  . as $points
  | (map(.column) | distinct) as $columns
  | (map(.row) | distinct) as $rows
  | [ [$title] + [ $metrics[] as $m | $columns[]
        | if ($metrics | length) > 1 then "\(.) \($m | split(".")[0])" else . end ] ]
    + [ $rows[] as $row | [$row] + [ $metrics[] as $m | $columns[] as $column
        | first($points[] | select(.row == $row and .column == $column)) // null
        | .metrics[$m]? | shown($m) ] ]
  | . as $lines
  | [range(0; $lines[0] | length) as $i | $lines | map(.[$i] | length) | max] as $widths
  | $lines[] | . as $line
  | [range(0; length) as $i | $line[$i]
     | if $i == 0 then pad($widths[0]) else lead($widths[$i]) end]
  | join("   ");

($ARGS.named.across // "scheme") as $across
| ($ARGS.named.by // "") as $by
| ($ARGS.named.metric // "download.goodput_bps" | split(" ")) as $metrics
| map((.parameters | del(.[$across], .[$by])) as $others | . + {
    column: (.parameters[$across] | name),
    block: (if $by == "" then "" else (.parameters[$by] | name) end),
    row: ([$others[] | name] | join("  ")),
    axes: ([$others | keys[] | short] | join("  "))
  })
| . as $points
| (map(.block) | distinct) as $blocks
| $blocks[] as $block
| [$points[] | select(.block == $block)]
| (if $block == "" then "" else "\($block), " end + .[0].axes) as $title
| (if $block == $blocks[0] then empty else "" end), table($title; $across; $metrics)
