package main

import (
	"context"
	"fmt"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
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
		_, parked := one.properties[primitive.PropertyRealTopic] // others may be on their way for as long
		outcome[one.body] = []interface{}{"waited", parked && one.at.Sub(begin) >= time.Second, propertyNames(one)}
	}
	return outcome
}
