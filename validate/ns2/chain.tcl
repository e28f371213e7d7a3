# fixed host -(100 Mbit/s, 50 ms)- base -(2 Mbit/s, d1, loss p1)- router -(11 Mbit/s, d2, loss p2)- mobile
#
# Delays in ms. `both 1` loses acknowledgements as well; `burst n` lets losses on base-router come
# in bursts of n packets on average, with p1 still the share of all packets.
source [file join [file dirname [info script]] common.tcl]
options {time 2000 d1 20 d2 20 p1 0 p2 0.0001 both 0 burst 1 payload 1000 window 16
    ssthresh 10 queue 100 min_rto 0.3}
set ns [simulator $o(payload) $o(window) $o(queue)]
foreach node {fixed base router mobile} { set $node [$ns node] }
$ns duplex-link $fixed $base 100Mb 50ms DropTail
$ns duplex-link $base $router 2Mb $o(d1)ms DropTail
$ns duplex-link $router $mobile 11Mb $o(d2)ms DropTail

# Exponential gaps and geometric bursts, both in packets. What a gap loses when it is cut to whole
# packets is added to the next.
proc bursts {ns from to share mean} {
    global o
    set rng [stream]
    set gap [expr $mean * (1 - $share) / $share]
    set hit {}
    set at 0.0
    set most [expr int($o(time) * 300)]
    while {$at < $most} {
        set at [expr $at + [$rng exponential $gap]]
        set burst 1
        while {[$rng uniform 0 1] > 1.0 / $mean} { incr burst }
        for {set i 0} {$i < $burst} {incr i} { lappend hit [expr int($at) + $i] }
        set at [expr $at + $burst]
    }
    set model [new ErrorModel/List]
    $model unit pkt
    eval $model droplist $hit
    $model drop-target [new Agent/Null]
    $ns link-lossmodel $model $from $to
}

if {$o(burst) > 1} {
    bursts $ns $base $router $o(p1) $o(burst)
} elseif {$o(p1) > 0} {
    losses $ns $base $router $o(p1)
    if {$o(both)} { losses $ns $router $base $o(p1) }
}
if {$o(p2) > 0} {
    losses $ns $router $mobile $o(p2)
    if {$o(both)} { losses $ns $mobile $router $o(p2) }
}
set tcp [flow $ns $fixed $mobile]
$ns at 0.0 "$tcp set ssthresh_ $o(ssthresh)"
finish $ns $tcp $o(payload)
