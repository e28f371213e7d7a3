# fixed host -(100 Mbit/s)- base -(2 Mbit/s, 1 ms)- mobile, silent for a while in every cycle
#
# Times in s, the round-trip time in ms. An outage begins at a uniform time in [first, first +
# jitter] of the cycle and lasts `outage` times a uniform number in [1 - spread, 1 + spread].
# Whatever would arrive over the last hop meanwhile is lost, in both directions; queues drain.
# `from_mobile 1` turns the flow round.
source [file join [file dirname [info script]] common.tcl]
options {time 500 rtt 5 outage 1 spread 0 cycle 10 first 4 jitter 2 from_mobile 0
    payload 1000 window 20 queue 50}
set ns [simulator $o(payload) $o(window) $o(queue)]
foreach node {fixed base mobile} { set $node [$ns node] }
$ns duplex-link $fixed $base 100Mb [expr $o(rtt) / 2.0 - 1]ms DropTail
$ns duplex-link $base $mobile 2Mb 1ms DropTail
set hop [list [losses $ns $base $mobile 0] [losses $ns $mobile $base 0]]

proc all {do} {
    global hop
    foreach model $hop { $do $model }
}

set rng [stream]
set cycle $o(first)
while {$o(outage) > 0 && $cycle + $o(jitter) + $o(outage) < $o(time)} {
    set from [expr $cycle + [$rng uniform 0 $o(jitter)]]
    set length [expr $o(outage) * (1 + $o(spread) * [$rng uniform -1 1])]
    $ns at $from "all shut"
    $ns at [expr $from + $length] "all reopen"
    set cycle [expr $cycle + $o(cycle)]
}
if {$o(from_mobile)} {
    set tcp [flow $ns $mobile $fixed]
} else {
    set tcp [flow $ns $fixed $mobile]
}
finish $ns $tcp $o(payload)
