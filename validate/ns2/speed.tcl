# The chain without losses and without anything that is not needed: for speed.
set time [lindex $argv 0]
remove-all-packet-headers
add-packet-header Flags IP TCP
Queue set limit_ 100
Agent/TCP set window_ 16
Agent/TCP set minrto_ 0.3
set ns [new Simulator]
foreach node {fixed base router mobile} { set $node [$ns node] }
$ns duplex-link $fixed $base 100Mb 50ms DropTail
$ns duplex-link $base $router 2Mb 20ms DropTail
$ns duplex-link $router $mobile 11Mb 20ms DropTail
set tcp [new Agent/TCP/Reno]
set sink [new Agent/TCPSink]
$ns attach-agent $fixed $tcp
$ns attach-agent $mobile $sink
$ns connect $tcp $sink
$ns at 0.0 "[$tcp attach-app FTP] start"
$ns at $time { puts "{\"acked\":[expr [$tcp set ack_] + 1]}"; exit 0 }
$ns run
