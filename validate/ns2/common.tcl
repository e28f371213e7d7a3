# What every script here shares: options, senders, random losses, the result.

# Options are "key value" arguments over the defaults; an unknown key is an error.
proc options {defaults} {
    global o argv
    array set o {sender Reno min_rto 0.2 tick 0.01 max_rto 60 first_window 2 seed 1}
    array set o $defaults
    foreach {key value} $argv {
        if {![info exists o($key)]} {
            puts stderr "unknown option $key"
            exit 2
        }
        set o($key) $value
    }
}

# A simulator whose senders take the options' parameters; payload in bytes, window in packets.
# Headers of protocols that nobody speaks would slow every packet down: `more` names those that a
# script needs besides TCP's.
proc simulator {payload window queue {more {}}} {
    global o
    remove-all-packet-headers
    eval add-packet-header Flags IP TCP $more
    Queue set limit_ $queue
    Agent/TCP set packetSize_ $payload
    Agent/TCP set useHeaders_ true
    Agent/TCP set window_ $window
    Agent/TCP set windowInit_ $o(first_window)
    Agent/TCP set minrto_ $o(min_rto)
    Agent/TCP set maxrto_ $o(max_rto)
    Agent/TCP set tcpTick_ $o(tick)
    return [new Simulator]
}

# A saturating flow from one node to another, begun at time zero.
proc flow {ns from to} {
    global o
    set class [expr {$o(sender) == "Tahoe" ? "TCP" : "TCP/$o(sender)"}]
    set tcp [new Agent/$class]
    set sink [new Agent/[expr {$o(sender) == "Sack1" ? "TCPSink/Sack1" : "TCPSink"}]]
    $ns attach-agent $from $tcp
    $ns attach-agent $to $sink
    $ns connect $tcp $sink
    $ns at 0.0 "[$tcp attach-app FTP] start"
    return $tcp
}

# Each call gives a stream of its own, and each seed other numbers in it.
proc stream {} {
    global o
    set rng [new RNG]
    time {$rng next-substream} $o(seed)
    return $rng
}

# An error model at the far end of the link, which loses the share `rate` of packets.
proc losses {ns from to rate} {
    set model [new ErrorModel]
    $model unit pkt
    $model set rate_ $rate
    set uniform [new RandomVariable/Uniform]
    $uniform use-rng [stream]
    $model ranvar $uniform
    $model drop-target [new Agent/Null]
    $ns link-lossmodel $model $from $to
    return $model
}

# A rate of losses above one loses everything: a uniform number is always below it.
proc shut {model} { $model set rate_ 1.1 }
proc reopen {model} { $model set rate_ 0 }

# At the end: acknowledged packets, the payload's rate, and what it took.
proc finish {ns tcp payload} {
    global o
    $ns at $o(time) "result $tcp $payload"
    $ns run
}

proc result {tcp payload} {
    global o
    set acked [expr [$tcp set ack_] + 1]
    set bps [expr $acked * $payload * 8.0 / $o(time)]
    puts "{\"bps\":$bps,\"acked\":$acked,\"timeouts\":[$tcp set nrexmit_],\"retransmits\":[$tcp set nrexmitpack_]}"
    exit 0
}
