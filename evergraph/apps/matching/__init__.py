"""Image feature matching as edge prediction on a graph that grows with every frame, Section 7."""
