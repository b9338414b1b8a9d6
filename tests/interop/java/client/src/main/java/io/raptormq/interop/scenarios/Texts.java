package io.raptormq.interop.scenarios;

import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.IntStream;
import org.apache.rocketmq.common.message.Message;

/** Numbered messages and the set of their bodies. */
final class Texts {
    private Texts() {}

    /** Messages with the bodies "name-from" up to, not including, "name-to". */
    static List<Message> messages(String topic, String name, int from, int to) {
        return IntStream.range(from, to).mapToObj(i -> message(topic, name + "-" + i)).toList();
    }

    static Message message(String topic, String body) {
        return new Message(topic, body.getBytes(StandardCharsets.UTF_8));
    }

    static Set<String> bodies(String name, int from, int to) {
        Set<String> bodies = new TreeSet<>();
        IntStream.range(from, to).forEach(i -> bodies.add(name + "-" + i));
        return bodies;
    }
}
