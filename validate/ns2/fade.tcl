# fixed host -(10 Mbit/s, 1 ms)- base -(rate, 1 ms)- mobile, whose air fades
#
# `share` of the time is spent in fades of mean length `fade` (s); both states last exponentially
# long, each direction by itself. A packet is lost if its time on air touches a fade. ns-2 judges
# packets when they arrive: so a fade holds there from its beginning plus the delay, to its end plus
# the delay plus the time of a packet on air.
source [file join [file dirname [info script]] common.tcl]
options {time 1000 share 0.01 fade 0.017 rate 0.66e6 payload 1460 window 11 queue 50}
set ns [simulator $o(payload) $o(window) $o(queue)]
foreach node {fixed base mobile} { set $node [$ns node] }
$ns duplex-link $fixed $base 10Mb 1ms DropTail
$ns duplex-link $base $mobile $o(rate) 1ms DropTail

# Fades that follow closely overlap at the far end.
proc enter {way by} {
    global model inside
    incr inside($way) $by
    if {$inside($way) > 0} { shut $model($way) } else { reopen $model($way) }
}

proc fade {way} {
    global ns o rng air good
    set length [$rng($way) exponential $o(fade)]
    set far [expr [$ns now] + 0.001]
    $ns at $far "enter $way 1"
    $ns at [expr $far + $length + $air($way)] "enter $way -1"
    $ns at [expr [$ns now] + $length + [$rng($way) exponential $good]] "fade $way"
}

set model(down) [losses $ns $base $mobile 0]
set model(up) [losses $ns $mobile $base 0]
set air(down) [expr ($o(payload) + 40) * 8.0 / $o(rate)]
set air(up) [expr 40 * 8.0 / $o(rate)]
foreach way {down up} {
    set inside($way) 0
    set rng($way) [stream]
    if {$o(share) > 0} {
        set good [expr $o(fade) * (1 - $o(share)) / $o(share)]
        $ns at [$rng($way) exponential $good] "fade $way"
    }
}
set tcp [flow $ns $fixed $mobile]
finish $ns $tcp $o(payload)
