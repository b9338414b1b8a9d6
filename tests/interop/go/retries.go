package main

import (
	"context"
	"fmt"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// retries: what a listener could not consume comes again by the retry topic after the level that it named, and after too
// many times is a dead letter.
func retries(cluster *Cluster) Outcome {
	topic := cluster.createTopic("retries", 2, readWrite)
	sender := cluster.producer("retries")
	for _, body := range []string{"good", "once", "poison"} {
		one := message(topic, body).WithTag("a").WithKeys([]string{"key"})
		one.WithProperty("mine", "yes")
		_, err := sender.SendSync(context.Background(), one)
		must(err)
	}
	must(sender.Shutdown())
	// A member looks for the retry topic when it starts, and then every 20 s; it comes into being with the first heartbeat.
	must(cluster.create("%RETRY%"+cluster.name("retries"), 1, readWrite))
	handle := func(ctx context.Context, one *primitive.MessageExt) consumer.ConsumeResult {
		body := string(one.Body)
		if body == "good" || (body == "once" && one.ReconsumeTimes > 0) {
			return consumer.ConsumeSuccess
		}
		if concurrently, found := primitive.GetConcurrentlyCtx(ctx); found {
			concurrently.DelayLevelWhenNextConsume = 1
		}
		return consumer.ConsumeRetryLater
	}
	reader, inbox := cluster.consumer("retries", topic, tag("a"), handle, consumer.WithMaxReconsumeTimes(2))
	inbox.until("6 deliveries", func() bool { return len(inbox.received) >= 6 })
	letter := deadLetter(cluster, "%DLQ%"+cluster.name("retries"))
	must(reader.Shutdown())
	outcome := Outcome{"dead letter": []interface{}{letter.body, letter.reconsumed, propertyNames(letter)}}
	for _, one := range inbox.all() {
		outcome[fmt.Sprintf("%s, %d", one.body, one.reconsumed)] = []interface{}{one.topic == topic, one.tags, one.keys, propertyNames(one)}
	}
	return outcome
}

// deadLetter waits for one in a group's topic of dead letters, which comes into being with the first of them.
func deadLetter(cluster *Cluster, topic string) Received {
	awaitRoute(cluster, topic)
	reader, inbox := cluster.consumer("retries_dead", topic, tag("*"), nil)
	inbox.untilBodies(1)
	must(reader.Shutdown())
	return inbox.all()[0]
}
