package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/apache/rocketmq-client-go/v2/consumer"
)

// tagFilter: consumers receive the tags that they asked for; AaAa and BBBB have the same hash code.
func tagFilter(cluster *Cluster) Outcome {
	topic := cluster.createTopic("tag_filter", 2, readWrite)
	sender := cluster.producer("tag_filter")
	tags := []string{"red", "green", "blue", "AaAa", "BBBB", "größe"}
	for i := 0; i < each; i++ {
		for _, name := range tags {
			_, err := sender.SendSync(context.Background(), message(topic, fmt.Sprintf("%s-%d", name, i)).WithTag(name))
			must(err)
		}
	}
	for queue := 0; queue < 2; queue++ {
		_, err := sender.SendSync(context.Background(), message(topic, fmt.Sprintf("last %d", queue)).WithTag("last"))
		must(err)
	}
	must(sender.Shutdown())
	outcome := Outcome{}
	for expression, wanted := range map[string]int{"*": len(tags)*each + 2, "red || blue": 2 * each, "AaAa": each} {
		reader, inbox := cluster.consumer(fmt.Sprintf("tag_filter_%x", expression), topic, tag(expression), nil)
		inbox.untilBodies(wanted)
		must(reader.Shutdown())
		outcome[expression] = append(receivedTags(inbox), strconv.Itoa(len(bodies(inbox.all()))))
	}
	// This client computes the hash code of such a tag in a way of its own.
	reader, inbox := cluster.consumer("tag_filter_letters", topic, tag("größe || last"), nil)
	inbox.until("the last ones", func() bool {
		last := 0
		for _, body := range bodies(inbox.received) {
			if strings.HasPrefix(body, "last") {
				last++
			}
		}
		return last == 2
	})
	must(reader.Shutdown())
	outcome["größe || last"] = receivedTags(inbox)
	return outcome
}

func receivedTags(inbox *Inbox) []string {
	return distinct(inbox.all(), func(one Received) string { return one.tags })
}

// sqlFilter: the broker evaluates an SQL92 expression.
func sqlFilter(cluster *Cluster) Outcome {
	topic := cluster.createTopic("sql_filter", 2, readWrite)
	sender := cluster.producer("sql_filter")
	for i := 0; i < each; i++ {
		one := message(topic, fmt.Sprintf("sql-%d", i))
		one.WithProperty("price", strconv.Itoa(i))
		one.WithProperty("kind", []string{"even", "odd"}[i%2])
		_, err := sender.SendSync(context.Background(), one)
		must(err)
	}
	must(sender.Shutdown())
	selector := consumer.MessageSelector{Type: consumer.SQL92, Expression: "price >= 10 AND kind = 'odd'"}
	reader, inbox := cluster.consumer("sql_filter", topic, selector, nil)
	inbox.untilBodies(5)
	must(reader.Shutdown())
	return Outcome{"received": bodies(inbox.all())}
}
