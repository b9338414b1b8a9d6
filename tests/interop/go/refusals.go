package main

import (
	"context"
	"regexp"
	"strings"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const readOnly = 4

var codePattern = regexp.MustCompile(`CODE: (\d+)`)

// code is what the broker or name server answered with, 0 for no error; other errors are their text.
func code(err error) string {
	if err == nil {
		return "0"
	}
	if found := codePattern.FindStringSubmatch(err.Error()); found != nil {
		return found[1]
	}
	return err.Error()
}

// chosen sends to one queue whatever the routes say.
type chosen struct{ queue *primitive.MessageQueue }

func (chosen chosen) Select(*primitive.Message, []*primitive.MessageQueue, string) *primitive.MessageQueue {
	return chosen.queue
}

// refusals: what is refused, and with which code.
func refusals(cluster *Cluster) Outcome {
	topic := cluster.createTopic("refusals", 1, readWrite)
	restricted := cluster.createTopic("refusals_read_only", 1, readOnly)
	outcome := Outcome{}
	send := func(name, route, topic string, queue int, change func(*primitive.Message)) {
		place := &primitive.MessageQueue{Topic: topic, BrokerName: "broker-a", QueueId: queue}
		sender := cluster.producer("refusals", producer.WithQueueSelector(chosen{place}), producer.WithCreateTopicKey("nothing"))
		one := message(route, "x")
		change(one)
		_, err := sender.SendSync(context.Background(), one)
		outcome[name] = strings.ReplaceAll(code(err), cluster.prefix, "")
		must(sender.Shutdown())
	}
	unchanged := func(*primitive.Message) {}
	send("nothing wrong", topic, topic, 0, unchanged)
	send("queue that is not there", topic, topic, 9, unchanged)
	send("topic that may only be read", topic, restricted, 0, unchanged)
	send("topic that nobody created, by a client that has a route", topic, cluster.name("missing"), 0, unchanged)
	send("topic that nobody created", cluster.name("missing_too"), topic, 0, unchanged)
	send("illegal name of a topic", topic, "no spaces please", 0, unchanged)
	send("topic of the system", topic, "SCHEDULE_TOPIC_"+strings.Repeat("X", 4), 0, unchanged)
	send("properties of 33 KB", topic, topic, 0, func(one *primitive.Message) { one.WithProperty("large", strings.Repeat("v", 33000)) })
	send("delivery time in four days", topic, topic, 0, func(one *primitive.Message) { one.WithProperty("TIMER_DELAY_SEC", "345600") })
	return outcome
}
