package main

import (
	"context"
	"fmt"
	"time"
)

// delays: a message with a level comes when its time has come; level 0 is no delay.
func delays(cluster *Cluster) Outcome {
	topic := cluster.createTopic("delays", 1, readWrite)
	reader, inbox := cluster.consumer("delays", topic, tag("*"), nil)
	sender := cluster.producer("delays")
	begin := time.Now()
	for _, level := range []int{0, 1, 99} {
		_, err := sender.SendSync(context.Background(), message(topic, fmt.Sprintf("level %d", level)).WithDelayTimeLevel(level))
		must(err)
	}
	must(sender.Shutdown())
	inbox.untilBodies(2)
	must(reader.Shutdown())
	outcome := Outcome{"received": bodies(inbox.all())}
	for _, one := range inbox.all() {
		outcome[one.body] = []interface{}{"waited", one.at.Sub(begin) >= time.Second, propertyNames(one)}
	}
	return outcome
}
