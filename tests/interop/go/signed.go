package main

import (
	"context"
	"strings"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// signed: what a broker with access control lets users do. The scenario AccessControl in Java made the user bob, who may use
// the topic orders, and nothing else.
func signed(cluster *Cluster) Outcome {
	bob := primitive.Credentials{AccessKey: "bob", SecretKey: "bob-secret"}
	send := func(topic string, credentials *primitive.Credentials) string {
		options := []producer.Option{}
		if credentials != nil {
			options = append(options, producer.WithCredentials(*credentials))
		}
		sender := cluster.producer("signed", options...)
		_, err := sender.SendSync(context.Background(), message(topic, "signed, from Go: größe").WithTag("go"))
		must(sender.Shutdown())
		return strings.ReplaceAll(cluster.remark(err), "nothing refused", "sent")
	}
	outcome := Outcome{
		"allowed":       send("orders", &bob),
		"another topic": send("bills", &bob),
		"wrong secret":  send("orders", &primitive.Credentials{AccessKey: "bob", SecretKey: "guessed"}),
		"unknown user":  send("orders", &primitive.Credentials{AccessKey: "mallory", SecretKey: "x"}),
		"unsigned":      send("orders", nil),
	}
	reader, inbox := cluster.consumer("signed", "orders", tag("go"), nil, consumer.WithCredentials(bob))
	inbox.untilBodies(1)
	must(reader.Shutdown())
	outcome["received"] = bodies(inbox.all())
	return outcome
}
