# Makes a table of what `lasthop sim --json` prints. Run it with `jq -rs -f`, with
#   --arg across AXIS     the axis that becomes columns; `scheme` if not said
#   --arg metric "A B"    metrics, each with columns of its own; `download.goodput_bps` if not said
# Rates are in kbit/s. A value is a mean over runs and half of its 95 % interval.

def pad($n): . + (" " * ([$n - length, 0] | max));
def lead($n): (" " * ([$n - length, 0] | max)) + .;
def distinct: reduce .[] as $x ([]; if any(.[]; . == $x) then . else . + [$x] end);
def name: if type == "array" then map(tostring) | join("+") else tostring end;
def round_to($digits): . * pow(10; $digits) | round / pow(10; $digits);
def show($scale):
  if . == null or .mean == null then "-"
  else (if $scale > 1 then 0 else 1 end) as $digits
  | (.mean / $scale | round_to($digits) | tostring)
    + (if .hi == null then "" else " ±" + ((.hi - .lo) / 2 / $scale | round_to($digits) | tostring) end)
  end;

($ARGS.named.across // "scheme") as $across
| ($ARGS.named.metric // "download.goodput_bps" | split(" ")) as $metrics
| map(. + {
    column: (.parameters[$across] | name),
    row: (.parameters | del(.[$across]) | to_entries | map("\(.key)=\(.value | name)") | join(" "))
  })
| . as $points
| (map(.column) | distinct) as $columns
| (map(.row) | distinct) as $rows
| [ [""] + [$metrics[] as $m | $columns[]
    | if ($metrics | length) > 1 then "\(.) \($m | split(".")[0])" else . end] ]
  + [ $rows[] as $row | [$row] + [ $metrics[] as $m | $columns[] as $column
      | first($points[] | select(.row == $row and .column == $column)) // null
      | .metrics[$m]? | show(if $m | endswith("_bps") then 1000 else 1 end) ] ]
| . as $table
| [range(0; $table[0] | length) as $i | $table | map(.[$i] | length) | max] as $widths
| $table[] | . as $line
| [range(0; length) as $i | $line[$i] | if $i == 0 then pad($widths[0]) else lead($widths[$i]) end]
| join("   ")
