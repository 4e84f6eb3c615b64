"""The builder's methods, one mixin per op family; `rhino.dialects.builder` puts them together."""
