# The network of chain.tcl with ns-2's Snoop at the base: fixed host - base - router - mobile.
#
# Snoop lives in the link layer of a LAN, so the base hands its packets to the wireless link over
# one that takes no time. `pin` holds its local timer at that many ms; 0 leaves it to itself.
source [file join [file dirname [info script]] common.tcl]
options {time 2000 d1 20 d2 20 p1 0 p2 0.0001 both 0 payload 1000 window 16 ssthresh 10
    queue 100 min_rto 0.3 pin 0}
set ns [simulator $o(payload) $o(window) $o(queue) {Snoop LL Mac ARP}]
set instant 1e10
foreach class {Mac Phy/WiredPhy} { $class set bandwidth_ $instant }
foreach class {Mac Channel} { $class set delay_ 0 }
LanRouter set debug_ 0

# The library's own binds every agent again at every packet, which takes most of a run's time.
set snoops {}
LL/LLSnoop instproc get-snoop {from to} {
    $self instvar snoops_ delay_
    if {![info exists snoops_($from:$to)]} {
        set snoop [new Snoop]
        $snoop llsnoop $self
        $snoop set delay_ $delay_
        set snoops_($from:$to) $snoop
        lappend ::snoops $snoop
    }
    return $snoops_($from:$to)
}

# An estimate that is written back before it can grow: the timer is srtt + 4 rttvar.
proc pin {} {
    global ns o snoops
    foreach snoop $snoops {
        $snoop set srtt_ [expr $o(pin) / 1000.0]
        $snoop set rttvar_ 0
    }
    $ns after 0.005 pin
}

foreach node {fixed base air router mobile} { set $node [$ns node] }
$ns duplex-link $fixed $base 100Mb 50ms DropTail
set lan [$ns make-lan [list $air] $instant 0ms LL Queue/DropTail Mac Channel]
$lan addNode [list $base] $instant 0ms LL/LLSnoop Queue/DropTail Mac
$ns duplex-link $air $router 2Mb $o(d1)ms DropTail
$ns duplex-link $router $mobile 11Mb $o(d2)ms DropTail
foreach {from to rate} [list $air $router $o(p1) $router $mobile $o(p2)] {
    if {$rate > 0} {
        losses $ns $from $to $rate
        if {$o(both)} { losses $ns $to $from $rate }
    }
}
set tcp [flow $ns $fixed $mobile]
$ns at 0.0 "$tcp set ssthresh_ $o(ssthresh)"
if {$o(pin) > 0} { pin }
finish $ns $tcp $o(payload)
