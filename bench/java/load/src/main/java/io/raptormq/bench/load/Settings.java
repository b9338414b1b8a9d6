package io.raptormq.bench.load;

import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/** What a run is told: arguments of the form name=value. */
public record Settings(Map<String, String> values) {
    public static Settings parse(String[] arguments) {
        return new Settings(Stream.of(arguments).map(each -> each.split("=", 2)).collect(Collectors.toMap(pair -> pair[0], pair -> pair[1])));
    }

    public String text(String name) {
        String value = values.get(name);
        if (value == null) {
            throw new IllegalArgumentException(name + "= is missing");
        }
        return value;
    }

    public int number(String name) {
        return Integer.parseInt(text(name));
    }

    public boolean isOn(String name) {
        return Boolean.parseBoolean(text(name));
    }
}
